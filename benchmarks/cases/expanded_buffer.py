# A buffer that is an expanded view, other on each worker (horovod/horovod#367, of another kind).
from __future__ import annotations

import torch
from _case import RANK, SCHEME, report
from torch import nn

import paceline

model = nn.Linear(4, 2)
model.register_buffer("mask", torch.tensor([float(RANK)]).expand(4))
pace = paceline.join(model, torch.optim.SGD(model.parameters(), 0.1), scheme=SCHEME)
report(buffer=model.mask.tolist())
pace.close()
