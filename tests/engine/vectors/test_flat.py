"""A Flat is a value: right, unchanging, and cheap."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.vector import Vector, cut, is_finite
from paceline.engine.vectors.buffer_pool import BufferRef, Pool
from paceline.engine.vectors.flat import Flat, FlatMemory
from tests.engine.vectors.numbers import numbers_of, random_flat

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
NUMBERS = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40)
SCALES = st.sampled_from([0.0, 1.0, -1.0, 0.5, -3.0, 1 / 49, 64.0])


def flat(numbers: object) -> Flat:
    return Flat.wrap(torch.tensor(np.asarray(numbers, dtype=np.float32)))


@given(NUMBERS, st.data())
@settings(max_examples=150)
def test_arithmetic_is_that_of_float64_within_float32_precision(numbers: list[float], data: st.DataObject) -> None:
    same_size = st.lists(st.floats(-100, 100, width=32), min_size=len(numbers), max_size=len(numbers))
    other, s, t = data.draw(same_size), data.draw(SCALES), data.draw(SCALES)
    a, b = np.array(numbers, dtype=np.float64), np.array(other, dtype=np.float64)
    u, v = flat(numbers) * s, t * flat(other)
    for got, wanted in [
        (u + v, a * s + b * t),
        (u - v, a * s - b * t),
        (-u, -a * s),
        (u * v, a * s * b * t),
        ((u + v) * 0.25 - u, (a * s + b * t) * 0.25 - a * s),
        (u[1:] - v[1:], (a * s - b * t)[1:]),
    ]:
        np.testing.assert_allclose(numbers_of(got), wanted, rtol=2e-6, atol=1e-3)
    assert u.norm() == pytest.approx(np.linalg.norm(a * s), rel=1e-5)


def test_it_is_a_vector_with_a_size() -> None:
    v = random_flat(10)
    assert isinstance(v, Vector)
    assert (len(v), v.nbytes, len(v[3:7]), len(v[7:3])) == (10, 40, 4, 0)


def test_scaling_and_slicing_touch_no_memory() -> None:
    v = random_flat(10)
    assert (v * 3.0).tensor.data_ptr() == v.tensor.data_ptr()
    assert (np.float64(3.0) * v).scale == 3.0
    assert v[2:5].tensor.data_ptr() == v.tensor.data_ptr() + 8


def test_dividing_what_was_multiplied_leaves_no_scale_behind() -> None:
    v = random_flat(5)
    assert all((v * float(n) * (1.0 / n)).scale == 1.0 for n in range(1, 500))


def test_a_sum_is_exact_where_the_left_side_has_no_scale() -> None:
    a, b = random_flat(100, 1), random_flat(100, 2)
    assert torch.equal((a - b * 0.1).value(), torch.add(a.tensor, b.tensor, alpha=-0.1))
    assert (b * 0.1 + a).scale == 1.0


def test_a_scale_of_zero_means_zeros_whatever_was_there() -> None:
    wild = flat([np.inf, np.nan, 1.0])
    v = flat([1.0, 2.0, 3.0])
    for got in (wild * 0.0 + v, v + wild * 0.0, v - wild * 0.0):
        assert got.value().tolist() == [1.0, 2.0, 3.0]
    assert (wild * 0.0 - v).value().tolist() == [-1.0, -2.0, -3.0]
    assert (wild * 0.0).value().tolist() == [0.0, 0.0, 0.0]
    assert (wild * 0.0).norm() == 0.0


def test_scales_far_apart_do_not_overflow() -> None:
    tiny, large = flat([1.0, 2.0]) * 1e-300, flat([3.0, 4.0]) * 2.0
    assert (tiny + large).value().tolist() == [6.0, 8.0]
    assert (large - tiny).value().tolist() == [6.0, 8.0]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_scheme_sees_that_a_vector_is_not_finite(number: float) -> None:
    assert is_finite(Flat.copy_of(torch.ones(3)) * 2.0)
    assert not is_finite(Flat.copy_of(torch.tensor([1.0, number])))


def test_not_a_number_is_not_hidden() -> None:
    assert np.isnan(numbers_of(flat([np.nan]) + flat([1.0]))).all()
    assert np.isnan(numbers_of(flat([1.0]) * float("nan"))).all()


@pytest.mark.parametrize(
    "bad", [torch.zeros(2, 2), torch.zeros(4, dtype=torch.float64), torch.zeros(8)[::2]], ids=["2-D", "double", "gaps"]
)
def test_wrap_refuses_what_is_not_a_flat_run_of_float32(bad: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="contiguous 1-D float32"):
        Flat.wrap(bad)


def test_misuse_is_an_error() -> None:
    v = random_flat(4)
    with pytest.raises(ValueError, match="4 and 1"):
        _ = v + random_flat(1)  # torch would broadcast
    with pytest.raises(ValueError, match="4 and 3"):
        _ = v * random_flat(3)
    with pytest.raises(ValueError, match="skip"):
        _ = v[::2]
    with pytest.raises(TypeError):
        _ = v[0]  # type: ignore[index]
    with pytest.raises(TypeError):
        _ = v + 1.0  # type: ignore[operator]


def test_there_is_no_autograd_in_a_flat() -> None:
    v = Flat.wrap(torch.ones(3, requires_grad=True))
    assert not (v + v * 0.5).value().requires_grad
    assert not Flat.copy_of(torch.ones(2, 2, requires_grad=True)).tensor.requires_grad


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, needs_cuda])])
def test_a_loan_ends_when_the_last_tensor_over_it_is_gone(device: str) -> None:
    came_back: list[torch.Tensor] = []
    buffer = torch.zeros(4, device=device)
    tensor = BufferRef(buffer, came_back.append).tensor()
    assert tensor.data_ptr() == buffer.data_ptr()
    view = tensor[1:]
    del tensor
    assert not came_back
    del view
    assert came_back[0] is buffer


# ---- memory --------------------------------------------------------------------------------------------------
def test_bytes_are_the_numbers_and_can_be_written_once_after_empty() -> None:
    memory = FlatMemory()
    v = random_flat(6)
    arrived = memory.empty(6)
    memory.bytes_of(arrived)[:] = memory.bytes_of(v)
    assert torch.equal(arrived.value(), v.value())
    assert memory.bytes_of(arrived).readonly
    assert memory.bytes_of(v).readonly
    assert bytes(memory.bytes_of(v * 2.0)) == (v.tensor * 2).numpy().tobytes()
    assert memory.bytes_of(v).format == "B"
    assert memory.bytes_of(memory.empty(0)).nbytes == 0


def test_the_parts_of_an_empty_vector_can_be_received_into() -> None:
    memory = FlatMemory()
    whole, v = memory.empty(10), random_flat(10)
    for part in cut(10, 3):
        memory.bytes_of(whole[part])[:] = memory.bytes_of(v[part])
    assert torch.equal(whole.value(), v.value())


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_parts_that_lie_side_by_side_are_joined_without_a_copy(shards: int, scale: float) -> None:
    v = (random_flat(100) + random_flat(100, 1))[3:90] * scale
    joined = FlatMemory().join([v[part] for part in cut(len(v), shards)])
    assert joined.tensor.data_ptr() == v.tensor.data_ptr()
    assert torch.equal(joined.value(), v.value())


def test_parts_from_different_places_are_joined_by_a_copy() -> None:
    a, b = random_flat(5, 1), random_flat(7, 2)
    memory = FlatMemory()
    for parts in ([a, b], [a * 2.0, b * 2.0], [a * 2.0, b], [a[3:], a[:3]], [a[:2], a[3:]], [a * 0.0, b], [a[:0], b]):
        joined = memory.join(parts)
        assert torch.equal(joined.value(), torch.cat([part.value() for part in parts]))
    halves = [a[:2], a[2:] * 2.0]
    assert torch.equal(memory.join(halves).value(), torch.cat([part.value() for part in halves]))


def test_a_join_keeps_its_memory_when_the_parts_are_gone(host: Pool) -> None:
    v = random_flat(100) + random_flat(100, 1)
    then = v.value().clone()
    joined = FlatMemory().join([v[:50], v[50:]])
    del v
    for seed in range(20):
        _ = random_flat(100, seed) + random_flat(100, seed)
    assert torch.equal(joined.value(), then)


@pytest.mark.cuda
@needs_cuda
def test_a_vector_on_a_gpu_travels_by_page_locked_memory_and_comes_back() -> None:
    memory = FlatMemory("cuda")
    v = Flat.wrap(torch.randn(1000, device="cuda"))
    arrived = memory.empty(1000)
    assert arrived.tensor.is_pinned()
    memory.bytes_of(arrived)[:] = memory.bytes_of(v * 2.0)
    assert torch.equal(arrived.value(), (v.tensor * 2).cpu())
    for mixed in (v - arrived, arrived * -1.0 + v):
        assert mixed.device.type == "cuda"
        torch.testing.assert_close(mixed.value(), -v.tensor)


def test_division_powers_and_splices_agree_with_numpy() -> None:
    a, b = torch.tensor([1.0, 4.0, 9.0]), torch.tensor([2.0, 0.5, 3.0])
    x, y = Flat(a, 2.0), Flat(b, 0.5)
    assert torch.equal((x / y).value(), (2 * a) / (0.5 * b))
    assert torch.equal((x / 4.0).value(), 2 * a / 4)
    assert torch.equal((x**0.5).value(), (2 * a) ** 0.5)
    assert torch.equal(x.spliced(slice(1, 3), y[:2]).value(), torch.tensor([2.0, 1.0, 0.25]))
    assert torch.equal(x.value(), 2 * a)


def test_passes_over_memory_are_counted() -> None:
    w, g = Flat(torch.zeros(1000)), Flat(torch.ones(1000))
    before = Flat.counter()
    scaled = g * 0.5
    assert Flat.counter() == before, "a product with a number is no pass"
    assert len(w - scaled) == 1000
    assert Flat.counter() == before + 4000
