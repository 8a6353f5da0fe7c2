"""Fitting a network: strides, pooling and layers, on a network small enough to be counted by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.engine.models.zoo import fit


class Strided(nn.Module):
    """Four reductions of 2; the second has two parallel branches that pad differently."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, padding=3), Branches(), nn.Conv2d(16, 16, 3, 2, padding=1), nn.MaxPool2d(2)
        )
        self.features.add_module("final_pool", nn.AvgPool2d(2, 1))
        self.output = nn.Linear(16, 1000)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(self.features(x).flatten(1))
        return logits


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(8, 8, 3, 2, padding=1), nn.MaxPool2d(3, 2, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.conv(x), self.pool(x)), 1)


def last_map(side: int, width: float = 1.0) -> list[int]:
    model = fit.fitted("strided", Strided, 32, (1, side, side), 5, width)
    seen: list[list[int]] = []
    model.features.final_pool.register_forward_pre_hook(lambda _, given: seen.append(list(given[0].shape[1:])))
    assert model(torch.randn(2, 1, side, side)).shape == (2, 5)
    return seen[0]


def test_at_the_size_of_the_paper_nothing_changes() -> None:
    assert last_map(32) == [16, 2, 2]


def test_a_smaller_picture_keeps_its_side_in_the_first_layers() -> None:
    assert last_map(24) == [16, 3, 3]  # 24 / 8: one reduction fewer
    assert last_map(13) == [16, 3, 3]  # 13 / 4, rounded down by the pooling of 2
    assert last_map(4) == [16, 4, 4]


def test_width_scales_what_every_layer_gives() -> None:
    assert last_map(32, width=0.5) == [8, 2, 2]


def test_a_large_kernel_that_loses_its_stride_becomes_3x3() -> None:
    model = fit.fitted("strided", Strided, 32, (1, 8, 8), 5, 1.0)
    first = model.features[0]
    assert isinstance(first, nn.Conv2d)
    assert (first.kernel_size, first.stride, first.padding, first.in_channels) == ((3, 3), (1, 1), (1, 1), 1)


def test_weights_before_a_relu_keep_the_variance() -> None:
    torch.manual_seed(0)
    wide, last = nn.Linear(400, 300), nn.Linear(300, 10)
    fit.draw_weights(nn.Sequential(wide, last))
    assert abs(float(wide.weight.detach().std()) / (2 / 400) ** 0.5 - 1) < 0.02
    assert float(wide.bias.detach().abs().max()) == 0
    assert float(last.weight.detach().abs().max()) <= 300**-0.5
