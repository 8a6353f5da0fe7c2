"""Every codec by itself: arrays in, bytes out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.codec import Codec, ResidualMemory, encoders, lookup
from tests.codec.algorithms.coding import decoded, encoded

LENGTHS = (1, 2, 7, 15, 16, 17, 33, 255, 257, 2047, 2049, 5000)


SMALL = {"int8": {"block": 16}, "sign": {"block": 8}, "dgc": {"momentum": 0.0, "warmup": 3}, "randomk": {"ratio": 0.25}}
"""Blocks whose sums and means of small whole numbers are exact in float32."""


with_residual = [name for name in encoders() if lookup(name)().feedback]


def small(name: str) -> Codec:
    return lookup(name)(**SMALL.get(name, {}))


# ---- nothing is lost ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", with_residual)
@settings(max_examples=40)
@given(data=st.data())
def test_what_was_decoded_and_what_is_left_is_the_sum_of_all_gradients_exactly(name: str, data: st.DataObject) -> None:
    length, seed = data.draw(st.sampled_from((1, 4, 8, 17, 64, 200))), data.draw(st.integers(0, 1000))
    codec, memory, random = small(name), ResidualMemory.of(length), np.random.default_rng(seed)
    total, sent = np.zeros(length), np.zeros(length)
    for _ in range(3):
        # Halves, and a largest number of 127 times a power of two, so that every scale is exact.
        g = (random.integers(-20, 21, length) / 2).astype(np.float32)
        if name == "int8":
            g = (np.round(g) - memory.left).astype(np.float32)
            g[::16] = 127 - memory.left[::16]
        total += g
        sent += decoded(codec, encoded(codec, g, memory), length)
    assert (sent + memory.left).tolist() == total.tolist()


@pytest.mark.parametrize("name", with_residual)
def test_a_constant_gradient_arrives_in_the_long_run(name: str) -> None:
    """The mean of what was decoded goes to the gradient itself: the residual stays bounded."""
    codec, length = small(name), 64
    if name == "2bit":
        codec = lookup(name)(threshold=2.0)
    g = np.linspace(-0.9, 0.9, length, dtype=np.float32)
    memory, total, rounds = ResidualMemory.of(length), np.zeros(length), 2000
    for _ in range(rounds):
        total += decoded(codec, encoded(codec, g, memory), length)
    assert np.abs(total / rounds - g).max() < 0.06


# ---- round trips -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", encoders())
@pytest.mark.parametrize("length", LENGTHS)
def test_the_bytes_are_as_many_as_announced_and_decode_to_the_length(name: str, length: int) -> None:
    codec, memory = lookup(name)(), ResidualMemory.of(length)
    g = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    for nth in range(3):
        data = encoded(codec, g, memory)
        assert len(data) == codec.size(length, nth)
        assert np.isfinite(decoded(codec, data, length)).all()


@pytest.mark.parametrize("name", encoders())
def test_a_gradient_may_be_read_only(name: str) -> None:
    g = np.ones(100, np.float32)
    g.flags.writeable = False
    data = encoded(lookup(name)(), g)
    data.flags.writeable = False
    assert len(decoded(lookup(name)(), data, 100)) == 100


# ---- what is refused ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", encoders())
def test_bytes_that_cannot_be_of_that_length_are_refused(name: str) -> None:
    codec = lookup(name)()
    data = encoded(codec, np.ones(3000, np.float32))
    too_many = np.zeros(8 * 3001, np.uint8)
    for wrong in (data[:-1], np.concatenate([data, data[:1]]), too_many):
        with pytest.raises(ValueError):
            decoded(codec, np.ascontiguousarray(wrong), 3000)


@pytest.mark.parametrize("name", with_residual)
@pytest.mark.parametrize("wild", [np.inf, -np.inf, np.nan])
def test_a_codec_with_a_residual_does_not_take_what_is_not_finite(name: str, wild: float) -> None:
    g = np.ones(3000, np.float32)
    g[::2] = wild  # randomk sees only what it draws
    assert lookup(name)().encode(g, ResidualMemory.of(len(g))) is None
