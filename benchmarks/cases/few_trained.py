# Temperature scaling: one trained number over a frozen network (gpleiss/temperature_scaling).
from __future__ import annotations

import torch
from _case import MODE, SCHEME, report
from torch import Tensor, nn

import paceline


class Scaled(nn.Module):
    def __init__(self, numbers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2).requires_grad_(False)
        self.temperature = nn.Parameter(torch.full((numbers,), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) / self.temperature.mean()


model = Scaled(int(MODE))
pace = paceline.join(model, torch.optim.SGD([model.temperature], 0.1), scheme=SCHEME)
for _ in range(3):
    nn.functional.cross_entropy(model(torch.randn(8, 3)), torch.zeros(8, dtype=torch.long)).backward()
    pace.step(8)
pace.close()
report(end=True, trained=bool((model.temperature != 1.5).all()))
