# The last evaluation of a script: shared_model() after close().
from __future__ import annotations

import torch
from _case import SCHEME, report
from torch import nn

import paceline

model = nn.Linear(3, 1)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), 1e-2), scheme=SCHEME)
for _ in range(3):
    model(torch.randn(8, 3)).pow(2).mean().backward()
    pace.step(8)
pace.close()
final = model.weight.detach().clone()
with pace.shared_model():
    report(is_final=torch.equal(final, model.weight))
