"""Varied batches: what may be drawn, what may not, and that a resumed run draws the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paceline.engine.data import load
from paceline.engine.data.batches import Batches
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.formats.augmentation import AREA, VARIATIONS, area_crop
from paceline.engine.data.partition_plan import make_partition
from paceline.engine.specs import AUGMENTATIONS, DataRecipe

SIDE = 16


def numbered(b: int = 64) -> Tensor:
    """Pictures whose pixels are all different and above 0: row * SIDE + column + 1."""
    return (torch.arange(SIDE * SIDE).float() + 1).view(1, 1, SIDE, SIDE).expand(b, 1, SIDE, SIDE).contiguous()


def test_the_names_are_those_that_can_be_given() -> None:
    assert {"none", *VARIATIONS} == set(AUGMENTATIONS)


def test_cifar_shifts_by_up_to_four_pixels_and_mirrors_half() -> None:
    varied = VARIATIONS["cifar"](numbered(400), seed=1)
    assert varied.shape == (400, 1, SIDE, SIDE)
    middles = varied[:, 0, 8, 8] - 1
    rows, columns = middles // SIDE, middles % SIDE
    mirrored = varied[:, 0, 8, 8] > varied[:, 0, 8, 9]
    assert set((rows - 8).int().tolist()) == set(range(-4, 5))
    assert set((columns[~mirrored] - 8).int().tolist()) == set(range(-4, 5))
    assert 150 < int(mirrored.sum()) < 250
    assert (varied == 0).any(), "the padding is seen"


def test_alexnet_crops_seven_eighths_without_padding() -> None:
    varied = VARIATIONS["alexnet"](numbered(), seed=1)
    assert varied.shape == (64, 1, 14, 14)
    assert float(varied.min()) >= 1
    plain = VARIATIONS["alexnet"].plain(numbered())
    assert torch.equal(plain, numbered()[..., 1:15, 1:15])


def test_imagenet_takes_parts_between_the_published_areas() -> None:
    x = (
        ((torch.arange(64) + 0.5) / 64).expand(200, 1, 64, 64).contiguous()
    )  # brightness is the place from left to right
    parts = area_crop(x, 32, 32, torch.Generator().manual_seed(0))
    widths = (parts[:, 0, 0, -1] - parts[:, 0, 0, 0]) * 32 / 31  # from the middle of the first pixel to the last's
    assert float(widths.max()) <= 1 + 1e-4
    assert float(widths.min()) >= (AREA[0] * 3 / 4) ** 0.5 - 0.05
    assert float(widths.std()) > 0.1


@pytest.mark.parametrize("name", VARIATIONS)
def test_the_seed_decides_and_torch_s_own_generator_is_left_alone(name: str) -> None:
    before = torch.random.get_rng_state()
    one, same, other = (
        VARIATIONS[name](torch.randn(8, 3, SIDE, SIDE).mul_(0) + numbered(8), seed) for seed in (1, 1, 2)
    )
    torch.random.set_rng_state(before)
    again = VARIATIONS[name](numbered(8).expand(8, 3, SIDE, SIDE).contiguous(), 1)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one, same)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_tests_and_the_model_see_the_size_of_the_crops() -> None:
    splits = load(DataRecipe(name="digits", resize=16, augment="alexnet"))
    assert splits.train.shape == (1, 14, 14)
    assert splits.test.x.shape[1:] == (1, 14, 14)
    assert splits.train.first(3)[0].shape == (3, 1, 14, 14)
    assert splits.train.to("cpu").augmentation is splits.train.augmentation


def test_a_run_that_is_resumed_sees_the_same_pictures() -> None:
    data = Dataset(numbered(40), torch.zeros(40, dtype=torch.int64), 1, VARIATIONS["cifar"])
    plan = make_partition("uniform", 40, 1)
    through, resumed = Batches(data, plan, 0, 8), Batches(data, plan, 0, 8)
    batches = [next(through)[0] for _ in range(7)]
    resumed.skip(3)
    assert torch.equal(next(resumed)[0], batches[3])
    assert not torch.equal(batches[5], batches[0]), "the same pictures are varied anew in the next epoch"
