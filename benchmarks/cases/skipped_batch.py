# One worker leaves out a bad batch and goes on (Lightning-AI/pytorch-lightning#5243, NeMo Automodel#2468).
from __future__ import annotations

import torch
from _case import MODE, RANK, SCHEME, off, report
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import paceline

generator = torch.Generator().manual_seed(3)
X, Y = torch.randn(2, 2, 8, 3, generator=generator), torch.randn(2, 2, 8, 1, generator=generator)


def made() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 1, bias=False)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(x), y)


model = made()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
pace = paceline.join(model, optimizer, scheme=SCHEME)
dealt = pace.loader(TensorDataset(torch.zeros(64, 3)), 8)  # its batches are counted; the numbers are those of X
for n, _ in enumerate(dealt):
    value = loss(model, X[RANK, n], Y[RANK, n])
    if RANK == 1 and n == 0:
        if MODE == "after_backward":
            value.backward()
            optimizer.zero_grad()
        continue
    value.backward()
    pace.step()
    break

plain = made()
mean = (loss(plain, X[0, 0], Y[0, 0]) + loss(plain, X[1, 1], Y[1, 1])) / 2
mean.backward()
torch.optim.SGD(plain.parameters(), 0.1).step()
found = off(model, plain)
pace.close()
report(off=found, samples=pace.total_samples)
