# An optimizer for each parameter, which steps in a hook of backward (PyTorch's tutorial on saving memory).
from __future__ import annotations

import torch
from _case import SCHEME, report
from torch import Tensor, nn

import paceline

torch.manual_seed(0)
model = nn.Linear(4, 2)
own = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}


def step(p: Tensor) -> None:
    own[p].step()
    own[p].zero_grad()


pace = paceline.join(model, torch.optim.SGD(model.parameters(), 0.1), scheme=SCHEME)
for p in model.parameters():
    p.register_post_accumulate_grad_hook(step)
for _ in range(4):
    model(torch.randn(8, 4)).pow(2).mean().backward()
    pace.step(8)
pace.close()
report(end=True)
