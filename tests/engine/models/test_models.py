"""Models: the same weights from the same seed, on any picture, at any width; and they learn."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from paceline.core.errors import ConfigError
from paceline.engine.data import load
from paceline.engine.data.batches import Batches
from paceline.engine.data.partition_plan import make_partition
from paceline.engine.models import SMALL, build
from paceline.engine.specs import SMALL_MODELS, DataRecipe, ModelRecipe

SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 17, 9)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads do not help models this small, and on a busy machine they wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_every_model_takes_every_shape_even_one_sample_in_training(name: str, shape: tuple[int, int, int]) -> None:
    model = build(ModelRecipe(name=name, width=0.125), shape, 7, seed=0).train()
    for n in (1, 3):
        logits = model(torch.randn(n, *shape))
        assert logits.shape == (n, 7)
        logits.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_the_seed_decides_the_weights(name: str) -> None:
    recipe = ModelRecipe(name=name, width=0.125)
    one, same, other = (build(recipe, (1, 8, 8), 10, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_building_leaves_the_global_generator_alone(name: str) -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    build(ModelRecipe(name=name, width=0.125), (1, 8, 8), 10, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_width_scales_the_model(name: str) -> None:
    sizes = [size(build(ModelRecipe(name=name, width=width), (1, 28, 28), 10, 0)) for width in (1e-9, 0.25, 0.5)]
    assert sizes == sorted(set(sizes))


def test_the_standard_models_have_their_published_sizes() -> None:
    def standard(name: str, shape: tuple[int, int, int]) -> int:
        return size(build(ModelRecipe(name=name), shape, 10, 0))

    assert standard("lenet", (1, 28, 28)) == 61_706
    assert standard("resnet18", (3, 32, 32)) == 11_173_962
    assert standard("mlp", (1, 28, 28)) == 784 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_the_models_said_to_normalise_batches_do(name: str) -> None:
    model = build(ModelRecipe(name=name, width=0.125), (1, 8, 8), 10, 0)
    assert any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


@pytest.mark.parametrize("width", [0.0, -1.0, math.nan, math.inf])
def test_a_width_that_is_not_positive_is_refused(width: float) -> None:
    with pytest.raises(ConfigError, match="must be positive"):
        build(ModelRecipe(width=width), (1, 8, 8), 10, 0)


def test_an_unknown_model_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mobilenet'"):
        build(ModelRecipe(name="mobile-net"), (1, 8, 8), 10, 0)


def test_the_small_networks_are_those_that_can_be_named() -> None:
    assert SMALL == SMALL_MODELS


def test_a_model_for_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="each must be 1 or more"):
        build(ModelRecipe(), (1, 0, 8), 10, 0)


@pytest.mark.parametrize(
    ("name", "width", "lr", "epochs"),
    [("mlp", 1.0, 0.1, 5), ("lenet", 1.0, 0.02, 8), ("cnn", 0.5, 0.1, 3), ("resnet18", 0.125, 0.05, 3)],
)
def test_every_model_learns_the_digits(name: str, width: float, lr: float, epochs: int) -> None:
    splits = load(DataRecipe(name="digits"))
    model = build(ModelRecipe(name=name, width=width), splits.train.shape, 10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for x, y in Batches(splits.train, make_partition("uniform", len(splits.train), 1), 0, 32, epochs=epochs):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = float((model(splits.test.x).argmax(1) == splits.test.y).float().mean())
    assert accuracy > 0.9
