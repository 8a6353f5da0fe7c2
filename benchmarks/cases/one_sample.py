# A last batch that would be cut into one sample for each, and batch norm (open-mmlab/mmpretrain#761, geti#1872).
from __future__ import annotations

import sys

import torch
from _case import SCHEME, random_data, report
from torch import nn
from torch.utils.data import DataLoader

import paceline

data, batch = random_data(int(sys.argv[2])), int(sys.argv[3])
model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
pace = paceline.join(model, torch.optim.SGD(model.parameters(), 0.1), scheme=SCHEME)
sizes = []
for x, y in pace.batches(data, batch, epochs=2):
    sizes.append(len(x))
    nn.functional.cross_entropy(model(x), y).backward()
    pace.step()
pace.close()
report(smallest=min(sizes), smallest_of_plain_loop=min(len(x) for x, _ in DataLoader(data, batch)), samples=sum(sizes))
