"""MXNet's networks by name and depth."""

from __future__ import annotations

import importlib

import pytest

from paceline.compat.mxnet.scripts.networks import DEPTHS, IMPORTED, NAMED, SMALL, model_of
from paceline.core.errors import ConfigError
from paceline.engine.specs import MODELS


def test_a_network_by_name_is_one_that_the_command_line_knows() -> None:
    named = {*NAMED.values(), *(path for depths in DEPTHS.values() for path in depths.values() if ":" not in path)}
    assert named - set(MODELS) == set()


@pytest.mark.parametrize(
    ("network", "layers", "classes", "model"),
    [
        ("lenet", None, 10, "lenet"),
        ("mobilenetv2", None, 1000, "mobilenet-v2"),
        ("resnet", None, 1000, "resnet50-v2"),
        ("resnet", 18, 10, "resnet18-v2"),
        ("resnet", 110, 10, "pytorchcv.models.preresnet_cifar:preresnet110_cifar10"),
        ("resnetv1", 50, 1000, "resnet50"),
        ("vgg", 16, 1000, "vgg16"),
        ("resnext", 101, 1000, "pytorchcv.models.resnext:resnext101_32x4d"),
    ],
)
def test_the_name_and_the_depth_decide(network: str, layers: int | None, classes: int, model: str) -> None:
    assert model_of(network, layers, classes) == model


@pytest.mark.parametrize(
    ("network", "layers", "classes", "told"),
    [
        ("alexnett", None, 10, "--network alexnett is not rebuilt; did you mean 'alexnet'"),
        ("resnet", 19, 10, "has no --num-layers 19: there are 18, 20, 34, 50, 56, 101, 110, 152, 164, 200"),
        ("resnet", 34, 10, "resnet of 34 layers is there for 1000 classes only, not for 10"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(network: str, layers: int | None, classes: int, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        model_of(network, layers, classes)


def test_functions_of_the_library_are_there() -> None:
    pytest.importorskip("pytorchcv", reason="needs pip install 'paceline[zoo]'")
    paths = [
        *IMPORTED.values(),
        *(path for of in (DEPTHS, SMALL) for depths in of.values() for path in depths.values()),
    ]
    for module, _, function in (path.partition(":") for path in paths if ":" in path):
        assert callable(getattr(importlib.import_module(module), function)), module
