# Weights that are limited after each step: the clipping of WGAN, max-norm (martinarjovsky/WassersteinGAN).
from __future__ import annotations

import torch
from _case import MODE, SCHEME, report
from torch import nn

import paceline


@torch.no_grad()
def clip(model: nn.Module) -> None:
    for p in model.parameters():
        p.data.clamp_(-0.1, 0.1)


torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.5)
pace = paceline.join(model, optimizer, scheme=SCHEME, constraint=clip if MODE == "constraint" else None)
for _ in range(20):
    (-model(torch.ones(8, 4)).mean()).backward()
    pace.step(8)
    if MODE == "clamp":
        clip(model)
pace.close()
report(largest=max(float(p.detach().abs().max()) for p in model.parameters()))
