# A frozen body larger than the trained head, loaded on worker 0 alone (horovod/horovod#367, PEFT).
from __future__ import annotations

import torch
from _case import MODE, RANK, SCHEME, report
from torch import nn

import paceline

width = int(MODE)
body, head = nn.Linear(width, width).requires_grad_(False), nn.Linear(width, 2)
if RANK == 0:
    nn.init.constant_(body.weight, 0.01)
model = nn.Sequential(body, head)
pace = paceline.join(model, torch.optim.SGD(head.parameters(), 0.1), scheme=SCHEME)
for _ in range(3):
    model(torch.randn(8, width)).pow(2).mean().backward()
    pace.step(8)
pace.close()
report(end=True, has_body_of_worker_0=bool((body.weight == 0.01).all()))
