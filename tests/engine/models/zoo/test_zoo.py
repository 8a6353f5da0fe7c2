"""The published networks: their published sizes, pictures of any size, and the library that may be missing."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine import models
from paceline.engine.models import zoo
from paceline.engine.models.zoo import NETWORKS, fit
from paceline.engine.specs import ZOO_MODELS, ModelRecipe

needs_library = pytest.mark.skipif(
    importlib.util.find_spec(zoo.LIBRARY) is None, reason="pytorchcv is not installed: pip install --no-deps pytorchcv"
)
SMALL = (1, 28, 28)


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def on_meta(name: str, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> nn.Module:
    """The network without memory for its weights."""
    published = NETWORKS[name]
    return fit.shaped(lambda: zoo.made(name, published), published.side, shape, classes, width)


def test_every_name_of_a_published_network_can_be_given() -> None:
    assert set(ZOO_MODELS) | {"resnet18"} == set(NETWORKS)


@needs_library
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_its_published_parameters_and_maps_its_pictures_to_classes(name: str) -> None:
    published = NETWORKS[name]
    picture = (3, published.side, published.side)
    model = on_meta(name, picture, published.classes)
    assert size(model) == published.parameters
    assert model.eval()(torch.empty(2, *picture, device="meta")).shape == (2, published.classes)


@needs_library
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_trains_on_small_pictures_even_one_sample(name: str) -> None:
    model = models.build(ModelRecipe(name=name, width=0.125), SMALL, 7, seed=0).train()
    logits = model(torch.randn(1, *SMALL))
    assert logits.shape == (1, 7)
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@needs_library
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("alexnet", (3, 17, 9)),
        ("alexnet", (3, 320, 320)),
        ("vgg16", (3, 17, 9)),
        ("googlenet", (3, 17, 9)),
        ("inception-bn", (3, 17, 9)),
        ("inception-v3", (3, 8, 8)),
        ("resnet18", (3, 320, 320)),
    ],
)
def test_a_network_is_fitted_to_pictures_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    model = on_meta(name, shape, 7, 0.25).eval()
    assert model(torch.empty(2, *shape, device="meta")).shape == (2, 7)


@needs_library
@pytest.mark.parametrize("name", ["alexnet", "mobilenet"])
def test_a_batch_may_have_its_channels_last(name: str) -> None:
    model = models.build(ModelRecipe(name=name, width=0.125), SMALL, 7, seed=0)
    batch = torch.randn(2, *SMALL).to(memory_format=torch.channels_last)
    assert model(batch).shape == (2, 7)


@needs_library
def test_on_pictures_of_cifar_the_networks_are_the_variants_known_for_it() -> None:
    assert size(on_meta("resnet18", (3, 32, 32), 10)) == 11_173_962
    assert size(on_meta("resnet50", (3, 32, 32), 10)) == 23_520_842
    assert size(on_meta("mobilenet", (3, 32, 32), 10)) == 3_217_226


@needs_library
def test_large_pictures_get_the_resnet18_of_imagenet_and_small_ones_that_of_cifar() -> None:
    large = models.build(ModelRecipe(name="resnet18", width=0.125), (3, 96, 96), 10, seed=0)
    small = models.build(ModelRecipe(name="resnet18", width=0.125), (3, 32, 32), 10, seed=0)
    assert size(large) > size(small)


@needs_library
def test_the_seed_decides_the_weights_and_the_global_generator_is_left_alone() -> None:
    recipe = ModelRecipe(name="mobilenet", width=0.125)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, same, other = (models.build(recipe, SMALL, 10, seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@needs_library
def test_width_scales_depthwise_networks_too() -> None:
    sizes = [size(on_meta("mobilenet", SMALL, 10, width)) for width in (1e-9, 0.25, 0.5, 1)]
    assert sizes == sorted(set(sizes))


def test_without_the_library_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorchcv", None)
    monkeypatch.setitem(sys.modules, "pytorchcv.models.alexnet", None)
    with pytest.raises(ConfigError, match=r"^model alexnet .* pip install 'paceline\[zoo\]'.*$"):
        models.build(ModelRecipe(name="alexnet"), SMALL, 10, seed=0)
    with pytest.raises(ConfigError, match="which is not installed"):
        zoo.import_library("alexnet")
    assert zoo.import_library("googlenet") is None


def test_pictures_that_are_too_small_are_refused_with_a_size_that_will_do() -> None:
    with pytest.raises(ConfigError, match=r"resnet50: pictures of 1 x 1 are too small .* --resize 16"):
        models.build(ModelRecipe(name="resnet50"), (3, 1, 1), 10, seed=0)
