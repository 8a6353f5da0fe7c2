"""Weights that somebody has changed are found by their numbers, whatever torch has counted."""

from __future__ import annotations

import pytest
import torch

from paceline.engine.vectors.weight_samples import SAMPLES, WeightSamples


def test_what_is_changed_behind_torchs_back_is_found() -> None:
    w = torch.randn(100, generator=torch.Generator().manual_seed(0))
    samples = WeightSamples(lambda: [w])
    samples.note()
    assert not samples.changed
    version = w._version
    w.data.clamp_(-0.1, 0.1)
    assert w._version == version
    assert samples.changed
    samples.note()
    assert not samples.changed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [0.01, 1.0])
def test_what_is_perturbed_and_restored_is_not_changed(dtype: torch.dtype, size: float) -> None:
    """The sum is not exact, and a number that is small beside its perturbation is off by many of its own units."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(SAMPLES, generator=generator).mul(torch.logspace(-6, 0, SAMPLES)).to(dtype)
    e = torch.randn(SAMPLES, generator=generator).mul(size).to(dtype)
    samples = WeightSamples(lambda: [w])
    samples.note()
    before = w.clone()
    w.add_(e)
    assert samples.changed
    w.sub_(e)
    assert not torch.equal(w, before)
    assert not samples.changed


def test_a_change_of_few_numbers_in_every_step_is_found_within_some() -> None:
    w = torch.randn(SAMPLES * 1000, generator=torch.Generator().manual_seed(0))
    samples, found = WeightSamples(lambda: [w]), list[bool]()
    for _ in range(20):
        samples.note()
        w[::997] += 1.0  # one in 997
        found.append(samples.changed)
    assert sum(found) > 5


def test_of_weights_that_arrive_in_parts_each_is_sampled_as_it_arrives() -> None:
    w, size = torch.zeros(SAMPLES * 10 + 7), SAMPLES * 3 + 1
    samples = WeightSamples(lambda: [w])
    for turn in range(3):
        samples.begin()
        starts = range(0, len(w), size)
        for start in reversed(starts):
            assert not samples.changed  # what has not arrived is not looked at
            w[start : start + size] = float(start + turn)
            samples.note_part(start, min(start + size, len(w)))
        assert not samples.changed
        assert sum(len(noted) for _, _, noted in samples._noted) in (SAMPLES, SAMPLES + 1)
        for start in starts:
            before = w[start : start + size].clone()
            w[start : start + size].add_(float(len(w)))
            assert samples.changed
            w[start : start + size] = before
            assert not samples.changed


def test_a_weight_that_becomes_infinite_is_changed_and_one_that_was_is_not() -> None:
    w = torch.tensor([1.0, torch.nan, torch.inf])
    samples = WeightSamples(lambda: [w, torch.zeros(0)])
    samples.note()
    assert not samples.changed
    w[0] = torch.nan
    assert samples.changed
