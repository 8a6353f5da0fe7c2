# A loop of steps that makes a new iterator at StopIteration (amdegroot/ssd.pytorch#393, mmsegmentation#2775).
from __future__ import annotations

import time

import torch
from _case import MODE, RANK, SCHEME, random_data, report
from torch import nn

import paceline

model = nn.Linear(3, 2)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), 1e-3), scheme=SCHEME)
loader = pace.loader(random_data(40), 8)
batches = iter(loader)
for _ in range(int(MODE)):
    if RANK == 1:
        time.sleep(0.05)  # the slow machine
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    nn.functional.cross_entropy(model(x), y).backward()
    pace.step()
pace.close()
report(steps=pace.steps)
