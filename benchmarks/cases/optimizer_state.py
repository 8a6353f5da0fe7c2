# Weights and optimizer state of one's own checkpoint, loaded before join (EleutherAI/gpt-neox#308, the_well#63).
from __future__ import annotations

import copy

import torch
from _case import MODE, RANK, SCHEME, joint, mini_batches, off, report, small_net
from torch import nn

import paceline

X, Y = mini_batches(8)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    if MODE == "adamw":
        return torch.optim.AdamW(model.parameters(), 0.01)
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


plain = small_net()
optimizer = optimizer_of(plain)
for step, (x, y) in enumerate(zip(X, Y, strict=True)):
    if step == 4:
        checkpoint = copy.deepcopy([plain.state_dict(), optimizer.state_dict()])
    optimizer.zero_grad()
    nn.functional.cross_entropy(plain(joint(x)), joint(y)).backward()
    optimizer.step()

model = small_net()
optimizer = optimizer_of(model)
model.load_state_dict(checkpoint[0])
optimizer.load_state_dict(checkpoint[1])
pace = paceline.join(model, optimizer, scheme=SCHEME)
for x, y in zip(X[4:, RANK], Y[4:, RANK], strict=True):
    nn.functional.cross_entropy(model(x), y).backward()
    pace.step(8)
pace.close()
report(off=off(model, plain))
