# torch.compile on the machine that can and not on the other (karpathy/nanoGPT#325, pytorch-image-models#2003).
from __future__ import annotations

import torch
from _case import RANK, SCHEME, random_data, report
from torch import nn

import paceline

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))
mine = torch.compile(model, backend="eager") if RANK == 0 else model
optimizer = torch.optim.SGD(mine.parameters(), 0.1)
pace = paceline.join(mine, optimizer, scheme=SCHEME, evaluate=lambda _: {"accuracy": 0.5})
for x, y in pace.batches(random_data(64), 8, epochs=2):
    nn.functional.cross_entropy(mine(x), y).backward()
    pace.step()
pace.close()
report(steps=pace.steps, weight=float(model[0].weight.detach().sum()))
