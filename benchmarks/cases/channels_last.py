# A channels_last model: right numbers, and the strides it had (PyTorch's tutorial on channels_last).
from __future__ import annotations

import torch
from _case import RANK, SCHEME, joint, off, report
from torch import nn

import paceline

generator = torch.Generator().manual_seed(1)
X = torch.randn(6, 2, 4, 3, 8, 8, generator=generator)
Y = torch.randint(0, 3, (6, 2, 4), generator=generator)


def made() -> nn.Module:
    torch.manual_seed(0)
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)]
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), *ends).to(memory_format=torch.channels_last)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


plain = made()
optimizer = optimizer_of(plain)
for x, y in zip(X, Y, strict=True):
    optimizer.zero_grad()
    nn.functional.cross_entropy(plain(joint(x).to(memory_format=torch.channels_last)), joint(y)).backward()
    optimizer.step()

model = made()
pace = paceline.join(model, optimizer_of(model), scheme=SCHEME)
for x, y in zip(X[:, RANK], Y[:, RANK], strict=True):
    nn.functional.cross_entropy(model(x.to(memory_format=torch.channels_last)), y).backward()
    pace.step(4)
pace.close()
report(off=off(model, plain), channels_last=model[0].weight.is_contiguous(memory_format=torch.channels_last))
