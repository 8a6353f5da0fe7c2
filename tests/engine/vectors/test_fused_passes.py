"""Loops that do two things in one pass give what two passes give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.engine.vectors.fused_passes import BLOCK, add_measured, sgd_step


def numbers(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


@pytest.mark.parametrize("length", [0, 1, BLOCK - 1, BLOCK + 1, 3 * BLOCK])
def test_a_sum_is_made_and_the_length_of_a_part_of_it_measured(length: int) -> None:
    x, y, out = numbers(0, length), numbers(1, length), np.empty(length, np.float32)
    squares = add_measured(x, y, np.float32(0.5), y, out)
    assert np.allclose(out, x + 0.5 * y, rtol=1e-6)
    assert squares == pytest.approx(float(np.sum(y.astype(np.float64) ** 2)), rel=1e-5)


@pytest.mark.parametrize("wild", [math.nan, math.inf])
def test_what_is_not_finite_is_measured_as_such(wild: float) -> None:
    x, y = numbers(0, 2 * BLOCK), numbers(1, 2 * BLOCK)
    y[BLOCK + 7] = wild
    assert not math.isfinite(add_measured(x, y, np.float32(1), y, np.empty_like(x)))


def test_a_step_of_sgd_goes_by_the_numbers_of_each_group() -> None:
    """Group 0 is plain SGD with weight decay; group 1 has momentum. What is in no run stays as it was."""
    w, g, v = numbers(0, 10), numbers(1, 10), numbers(2, 10)
    runs = np.array([[0, 0, 4], [1, 6, 9]], np.int64)
    lr = np.array([[0.1, 0.01, 0.0, 1.0, 0.0], [0.2, 0.0, 0.9, 0.0, 1.0]], np.float32)
    before, out = v.copy(), w.copy()
    sgd_step(w, g, np.float32(2), runs, lr, np.float32(0.5), v, out)
    plain, heavy = slice(0, 4), slice(6, 9)
    assert np.allclose(out[plain], w[plain] - 0.05 * (2 * g[plain] + 0.01 * w[plain]), atol=1e-6)
    assert np.allclose(v[heavy], 0.9 * before[heavy] + 2 * g[heavy], atol=1e-6)
    assert np.allclose(out[heavy], w[heavy] - 0.1 * v[heavy], atol=1e-6)
    untouched = [4, 5, 9]
    assert np.array_equal(out[untouched], w[untouched])
    assert np.array_equal(v[[*untouched, 0, 1, 2, 3]], before[[*untouched, 0, 1, 2, 3]])
