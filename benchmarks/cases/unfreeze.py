# A layer that is frozen at first and unfrozen after some steps (Lightning#20340, detectron2#2486, fast-reid#178).
from __future__ import annotations

import torch
from _case import MODE, RANK, SCHEME, joint, mini_batches, off, report, small_net
from torch import nn

import paceline

X, Y = mini_batches(6)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 0.05, weight_decay=0.3)


plain = small_net()
optimizer = optimizer_of(plain)
for step, (x, y) in enumerate(zip(X, Y, strict=True)):
    plain[0].requires_grad_(step >= 3)
    optimizer.zero_grad()
    nn.functional.cross_entropy(plain(joint(x)), joint(y)).backward()
    optimizer.step()

model = small_net()
model[0].requires_grad_(MODE == "join_then_freeze")
pace = paceline.join(model, optimizer_of(model), scheme=SCHEME)
for step in range(6):
    model[0].requires_grad_(step >= 3)
    nn.functional.cross_entropy(model(X[step, RANK]), Y[step, RANK]).backward()
    pace.step(8)
pace.close()
report(off=off(model, plain))
