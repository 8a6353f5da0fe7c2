"""A Rope is a Flat whose parts come one after the other."""

from __future__ import annotations

import random
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import PeerLost, TimedOut
from paceline.engine.vectors.chunked import ChunkedVector, Chunks, RopeMemory, rope_of
from paceline.engine.vectors.flat import Flat, FlatMemory

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any)


def numbers(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(seed))


def edges_of(lengths: list[int]) -> list[int]:
    return [sum(lengths[:i]) for i in range(len(lengths) + 1)]


def scattered(lengths: list[int], scale: float = 1.0) -> tuple[ChunkedVector, torch.Tensor]:
    """A rope of parts that lie nowhere near one another, and its numbers."""
    whole = numbers(sum(lengths))
    parts = [Flat.wrap(part.clone() / scale) * scale for part in torch.split(whole, lengths)]
    return rope_of(parts), whole


@given(LENGTHS, st.sampled_from([1.0, -2.0, 0.5]), st.data())
@settings(max_examples=80)
def test_it_has_the_numbers_of_its_parts(lengths: list[int], scale: float, data: st.DataObject) -> None:
    rope, whole = scattered(lengths, scale)
    a = data.draw(st.integers(0, len(whole)))
    b = data.draw(st.integers(0, len(whole)))
    for got, wanted in [
        (rope, whole),
        (rope[a:b], whole[a:b]),
        (rope * 3.0, whole * 3.0),
        (-rope[a:b], -whole[a:b]),
        (rope + Flat.wrap(whole), whole + whole),
        (Flat.wrap(whole) - rope * 0.5, whole * 0.5),
    ]:
        assert len(got) == len(wanted)
        assert got.nbytes == 4 * len(wanted)
        torch.testing.assert_close(got.value(), wanted)
        out = torch.full_like(wanted, torch.nan)
        got.copy_into(out)
        torch.testing.assert_close(out, wanted)
    assert bytes(FlatMemory().bytes_of(rope)) == rope.value().numpy().tobytes()


def test_loading_part_by_part_joins_nothing() -> None:
    rope, whole = scattered([5, 1, 4])
    out = torch.empty(10)
    rope.copy_into(out)
    assert torch.equal(out, whole)
    assert rope._joined is None


def test_parts_side_by_side_are_a_view() -> None:
    whole = numbers(10)
    memory = RopeMemory()
    for joined in (memory.join([Flat(whole[:4]), Flat(whole[4:])]), memory.join([Flat(whole)])):
        assert not isinstance(joined, ChunkedVector)
        assert joined.tensor.data_ptr() == whole.data_ptr()
    apart = memory.join([Flat(whole[:4]), Flat(whole[5:])])
    assert isinstance(apart, ChunkedVector)
    assert apart.there


def test_the_scattered_parts_are_let_go_of_once_they_are_joined() -> None:
    rope, _ = scattered([5, 5])
    assert rope.tensor.data_ptr() == rope[:5].tensor.data_ptr() == rope[:10].tensor.data_ptr()


def test_a_reader_waits_for_what_it_reads_and_for_nothing_else() -> None:
    home = Flat(numbers(9))
    parts = Chunks([0, 3, 6, 9], what="weights", timeout_s=0.02, home=home)
    v = parts.vector * 2.0
    parts.put(1)
    assert (v[3:6].there, v[4:5].there, v[2:6].there, v[0:0].there, v.there) == (True, True, False, True, False)
    assert torch.equal(v[3:6].value(), home.tensor[3:6] * 2)
    with pytest.raises(TimedOut, match=r"waited 0 s for weights"):
        v[2:6].value()
    assert v.arrival.seconds_waited >= 0.02


def test_size_device_scale_and_slices_are_known_before_anything_is_there() -> None:
    v = Chunks([0, 3, 9], timeout_s=0.0).vector
    assert (len(v), v.nbytes, (v * 2.0)[1:4].scale, len(v[1:4]), v.device.type) == (9, 36, 2.0, 3, "cpu")
    assert v.same_as(v[:])
    assert not v.same_as(v[1:])
    assert not v.same_as(Flat(numbers(9)))
    assert "arriving" in repr(v)


def test_whoever_asked_hears_once_when_its_range_is_there() -> None:
    parts = Chunks([0, 2, 2, 4, 6], home=Flat(numbers(6)))
    v, heard = parts.vector, []
    v[1:4].when(lambda: heard.append("middle"))
    v.when(lambda: heard.append("all"))
    v[2:2].when(lambda: heard.append("nothing"))
    assert heard == ["nothing"]
    parts.put(3)
    parts.put(2)
    assert heard == ["nothing"]
    parts.put(0)
    assert heard == ["nothing", "middle", "all"]
    assert parts.there
    v.when(lambda: heard.append("late"))
    assert heard[-1] == "late"


def test_what_fails_wakes_those_who_wait_and_leaves_what_is_there() -> None:
    parts = Chunks([0, 2, 4], home=Flat(numbers(4)))
    parts.put(0)
    v, told = parts.vector, []
    v.when(lambda: told.append("never"))
    threading.Timer(0.02, parts.fail, [PeerLost("lost server 1: gone")]).start()
    with pytest.raises(PeerLost, match="lost server 1"):
        v.value()
    assert told == ["never"]
    assert torch.equal(v[:2].value(), numbers(4)[:2])
    with pytest.raises(PeerLost):
        v[1:3].copy_into(torch.empty(2))


def test_a_part_of_another_length_or_brought_twice_is_refused() -> None:
    parts = Chunks([0, 2, 4], what="weights")
    parts.put(0, Flat(numbers(2)))
    with pytest.raises(ValueError, match="there already"):
        parts.put(0, Flat(numbers(2)))
    with pytest.raises(ValueError, match=r"part 1 of weights has 2 elements, not 3"):
        parts.put(1, Flat(numbers(3)))


def test_many_threads_read_while_one_brings() -> None:
    count, rng = 40, random.Random(7)
    whole = numbers(10 * count)
    parts = Chunks(list(range(0, 10 * count + 1, 10)), timeout_s=10.0)
    results: list[torch.Tensor] = []

    def read() -> None:
        out = torch.empty(10 * count)
        parts.vector.copy_into(out)
        results.append(out)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for part in rng.sample(range(count), count):
        parts.put(part, Flat(whole[10 * part : 10 * part + 10].clone()))
    for reader in readers:
        reader.join(10.0)
    assert len(results) == 4
    assert all(torch.equal(result, whole) for result in results)
