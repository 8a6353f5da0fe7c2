# Two phases in one script: the head alone, then all with a new optimizer, as in transfer learning tutorials.
from __future__ import annotations

import torch
from _case import SCHEME, report, small_net
from torch import nn

import paceline


def phase(model: nn.Module, trained: nn.Module, lr: float) -> None:
    pace = paceline.join(model, torch.optim.SGD(trained.parameters(), lr), scheme=SCHEME)
    for _ in range(4):
        model(torch.randn(8, 4)).pow(2).mean().backward()
        pace.step(8)
    pace.close()


model = small_net()
body = model[0].requires_grad_(False)
phase(model, model[2], 0.1)
untouched = torch.equal(body.weight, small_net()[0].weight)
body.requires_grad_(True)
phase(model, model, 0.01)
report(first_left_body=untouched, second_trained_body=not torch.equal(body.weight, small_net()[0].weight))
