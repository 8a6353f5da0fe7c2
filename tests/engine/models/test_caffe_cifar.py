"""Caffe's two CIFAR-10 networks against its prototxt files: sizes, norm, first weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.models.caffe_cifar import WithinChannelNorm, cifar10_full, cifar10_quick

CIFAR = (3, 32, 32)


def test_the_networks_have_the_parameters_of_the_files() -> None:
    quick, full = (sum(p.numel() for p in make(CIFAR, 10, 1.0).parameters()) for make in (cifar10_quick, cifar10_full))
    assert (quick, full) == (145_578, 89_578)


@pytest.mark.parametrize("side", [8, 9, 28, 32, 33])
def test_pooling_rounds_up_as_caffe_does(side: int) -> None:
    model = cifar10_full((1, side, side), 10, 0.25)
    assert model(torch.randn(1, 1, side, side)).shape == (1, 10)


def test_smaller_pictures_are_refused() -> None:
    with pytest.raises(ConfigError, match="7 pixels a side are too small"):
        cifar10_full((1, 7, 9), 10, 0.25)


def test_the_first_weights_have_the_deviations_of_the_file() -> None:
    torch.manual_seed(0)
    layers = [m for m in cifar10_quick(CIFAR, 10, 1.0) if isinstance(m, nn.Conv2d | nn.Linear)]
    stds = [float(layer.weight.detach().std()) for layer in layers]
    assert stds == pytest.approx([1e-4, 0.01, 0.01, 0.1, 0.1], rel=0.1)
    assert all(not layer.bias.any() for layer in layers if layer.bias is not None)


def test_the_norm_divides_by_the_squares_within_a_channel() -> None:
    x = torch.zeros(1, 2, 3, 3)
    x[0, 0, 1, 1] = 3.0
    y = WithinChannelNorm(alpha=1.0, beta=0.5)(x)
    assert float(y[0, 0, 1, 1]) == pytest.approx(3 / (1 + 9 / 9) ** 0.5)
    assert not y[0, 1].any()
