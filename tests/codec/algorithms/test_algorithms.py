"""Every codec by itself: arrays in, bytes out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.codec import Codec, ResidualMemory, encoders, lookup, read
from paceline.core.errors import ConfigError

GOLDEN = np.array([1, 0.6, -0.7, 0.2, 0.5, -0.5, 0.49, -2, 0, 0.3, 0.3, 0.3, -0.1, 0.1, -0.49, 0.75, 0.9], np.float32)
LENGTHS = (1, 2, 7, 15, 16, 17, 33, 255, 257, 2047, 2049, 5000)
SMALL = {"int8": {"block": 16}, "sign": {"block": 8}, "dgc": {"momentum": 0.0, "warmup": 3}, "randomk": {"ratio": 0.25}}
"""Blocks whose sums and means of small whole numbers are exact in float32."""

with_residual = [name for name in encoders() if lookup(name)().feedback]


def small(name: str) -> Codec:
    return lookup(name)(**SMALL.get(name, {}))


def decoded(codec: Codec, data: np.ndarray, length: int) -> np.ndarray:
    out = np.full(length, np.nan, np.float32)
    codec.decode(data, out)
    return out


def encoded(codec: Codec, g: np.ndarray, memory: ResidualMemory | None = None) -> np.ndarray:
    data = codec.encode(g, memory)
    assert data is not None
    return data


# ---- exactly MXNet's ---------------------------------------------------------------------------------------------
def test_2bit_makes_the_bytes_that_mxnet_makes() -> None:
    codec, memory = read("2bit(threshold=0.5)"), ResidualMemory.of(len(GOLDEN))
    assert codec is not None
    assert encoded(codec, GOLDEN, memory).tobytes().hex(" ") == "f8 e2 00 03 c0 00 00 00"
    assert encoded(codec, GOLDEN, memory).tobytes().hex(" ") == "f8 ee 3f 0b c0 00 00 00"


def test_1bit_makes_the_bytes_that_mxnet_makes() -> None:
    codec = read("1bit(threshold=0)")
    assert codec is not None
    assert encoded(codec, GOLDEN, ResidualMemory.of(len(GOLDEN))).tobytes().hex(" ") == "da 75 80 00"


def test_2bit_decodes_to_the_threshold_and_keeps_the_rest() -> None:
    codec, memory = read("2bit(threshold=0.5)"), ResidualMemory.of(len(GOLDEN))
    assert codec is not None
    out = decoded(codec, encoded(codec, GOLDEN, memory), len(GOLDEN))
    assert out.tolist() == [0.5, 0.5, -0.5, 0, 0.5, -0.5, 0, -0.5, 0, 0, 0, 0, 0, 0, 0, 0.5, 0.5]
    assert memory.left.tolist() == (GOLDEN - out).tolist()


def test_1bit_decodes_to_one_and_minus_one_whatever_the_threshold() -> None:
    codec = read("1bit(threshold=0.6)")
    assert codec is not None
    out = decoded(codec, encoded(codec, GOLDEN, ResidualMemory.of(len(GOLDEN))), len(GOLDEN))
    assert out.tolist() == [1.0 if x > np.float32(0.6) else -1.0 for x in GOLDEN]


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


@pytest.mark.parametrize(("name", "relative"), [("fp16", 2**-11), ("bf16", 2**-8)])
def test_sixteen_bits_are_off_by_half_a_last_place_at_most(name: str, relative: float) -> None:
    g = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    codec = lookup(name)()
    assert (np.abs(decoded(codec, encoded(codec, g), len(g)) - g) <= np.abs(g) * relative + 1e-7).all()


def test_int8_is_off_by_half_a_scale_at_most_whatever_other_blocks_hold() -> None:
    g = np.random.default_rng(1).standard_normal(1024).astype(np.float32)
    g[:256] *= 1e6
    codec = lookup("int8")()
    off = np.abs(decoded(codec, encoded(codec, g), len(g)) - g)
    assert (off[256:] <= np.abs(g[256:]).max() / 253).all()


@pytest.mark.parametrize("magnitude", [1e-45, 1e-39, 1e-38, 3e38])
def test_int8_stands_the_smallest_and_the_largest_numbers(magnitude: float) -> None:
    g = np.array([magnitude, -magnitude, 0, magnitude / 3], np.float32)
    codec, memory = lookup("int8")(), ResidualMemory.of(4)
    out = decoded(codec, encoded(codec, g, memory), 4)
    assert np.abs(out - g).max() <= magnitude


# ---- which numbers are sent --------------------------------------------------------------------------------------
@settings(max_examples=60)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.floats(0.01, 0.5))
def test_topk_sends_the_largest_and_of_equal_ones_the_first(numbers: list[int], ratio: float) -> None:
    g, codec = np.array(numbers, np.float32), lookup("topk")(ratio=ratio)
    data = encoded(codec, g)
    k = len(data) // 8
    best = sorted(range(len(g)), key=lambda i: (-abs(g[i]), i))[:k]
    assert data[: 4 * k].view(np.uint32).tolist() == sorted(best)
    assert data[4 * k :].view(np.float32).tolist() == [g[i] for i in sorted(best)]


def test_dgc_warms_up_from_a_quarter_to_its_ratio() -> None:
    codec = lookup("dgc")(ratio=0.25**5, warmup=4)
    assert [codec.size(1 << 20, nth) // 8 for nth in range(6)] == [1 << 18, 1 << 16, 1 << 14, 1 << 12, 1 << 10, 1 << 10]


def test_dgc_corrects_momentum_and_forgets_it_where_it_sent() -> None:
    """Algorithm 4 by hand: u <- m u + g, r <- r + u, both zero where sent."""
    codec, memory = lookup("dgc")(ratio=0.25, momentum=0.5, warmup=0), ResidualMemory.of(4)
    g = np.array([4, 3, 0, 0], np.float32)
    sent = [decoded(codec, encoded(codec, g, memory), 4).tolist() for _ in range(2)]
    assert sent == [[4, 0, 0, 0], [0, 7.5, 0, 0]]
    assert memory.left.tolist() == [4, 0, 0, 0]


def test_randomk_sends_other_places_every_time_and_workers_send_the_same() -> None:
    codec, one, other = lookup("randomk")(ratio=0.1), ResidualMemory.of(1000), ResidualMemory.of(1000)
    g = np.arange(1, 1001, dtype=np.float32)
    first = decoded(codec, encoded(codec, g, one), 1000)
    second = decoded(codec, encoded(codec, g, one), 1000)
    assert np.count_nonzero(first) == np.count_nonzero(second) == 100
    assert np.flatnonzero(first).tolist() != np.flatnonzero(second).tolist()
    assert decoded(codec, encoded(codec, g, other), 1000).tolist() == first.tolist()


# ---- what is refused ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", encoders())
def test_bytes_that_cannot_be_of_that_length_are_refused(name: str) -> None:
    codec = lookup(name)()
    data = encoded(codec, np.ones(3000, np.float32))
    too_many = np.zeros(8 * 3001, np.uint8)
    for wrong in (data[:-1], np.concatenate([data, data[:1]]), too_many):
        with pytest.raises(ValueError):
            decoded(codec, np.ascontiguousarray(wrong), 3000)


@pytest.mark.parametrize("name", ["topk", "dgc"])
def test_a_place_outside_is_refused_before_anything_is_written(name: str) -> None:
    data = np.array([0, 100], np.uint32).tobytes() + np.array([1, 2], np.float32).tobytes()
    out = np.full(100, 7, np.float32)
    with pytest.raises(ValueError, match="a place outside 100 numbers"):
        lookup(name)().decode(np.frombuffer(data, np.uint8), out)
    assert (out == 7).all()


@pytest.mark.parametrize("name", with_residual)
@pytest.mark.parametrize("wild", [np.inf, -np.inf, np.nan])
def test_a_codec_with_a_residual_does_not_take_what_is_not_finite(name: str, wild: float) -> None:
    g = np.ones(3000, np.float32)
    g[::2] = wild  # randomk sees only what it draws
    assert lookup(name)().encode(g, ResidualMemory.of(len(g))) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topkk", "unknown codec 'topkk'; did you mean 'topk'?"),
        ("topk(rate=1)", "codec topk has no parameter 'rate'; did you mean 'ratio'?"),
        ("topk(ratio=x)", "ratio = x: must be float"),
        ("topk(ratio=2)", "codec topk: ratio = 2.0: must lie between 1e-06 and 0.5"),
        ("topk(ratio", "cannot read 'topk(ratio'; write a codec as 'topk' or 'topk(ratio=0.01)'"),
        ("topk(0.5)", "cannot read '0.5'; write parameters as 'topk(key=value, key=value)'"),
        ("sign(block=12)", "codec sign: block = 12: must be a multiple of 8"),
        ("none(x=1)", "none has no parameters"),
        ("", "cannot read ''; write a codec as 'topk' or 'topk(ratio=0.01)'"),
    ],
)
def test_a_codec_that_cannot_be_read_is_refused_with_the_way_out(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["2bit", "topk(ratio=0.05)", "dgc(ratio=0.01, momentum=0.5, warmup=7)", "int8"])
def test_a_codec_is_written_as_it_is_read(text: str) -> None:
    assert str(read(text)) == text


def test_none_is_no_codec() -> None:
    assert read("none") is None
