# Schedule-free optimizers exchange the weights in place by train() and eval() (facebookresearch/schedule_free).
from __future__ import annotations

from typing import Any

import schedulefree
from _case import RANK, SCHEME, joint, mini_batches, off, report, small_net
from torch import nn

import paceline

X, Y = mini_batches(8)


def optimizer_of(model: nn.Module) -> Any:
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=0.01, warmup_steps=2)
    optimizer.train()
    return optimizer


plain = small_net()
optimizer = optimizer_of(plain)
for x, y in zip(X, Y, strict=True):
    optimizer.zero_grad()
    nn.functional.cross_entropy(plain(joint(x)), joint(y)).backward()
    optimizer.step()
optimizer.eval()

model = small_net()
optimizer = optimizer_of(model)
pace = paceline.join(model, optimizer, scheme=SCHEME)
for step in range(8):
    nn.functional.cross_entropy(model(X[step, RANK]), Y[step, RANK]).backward()
    pace.step(8)
    if step == 3:  # an evaluation
        optimizer.eval()
        optimizer.train()
optimizer.eval()
pace.close()
report(off=off(model, plain))
