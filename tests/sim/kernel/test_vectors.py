"""Vectors of a simulation: arrays of one dtype, or Ghosts that have a length only."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core.vector import Ghost, is_finite
from paceline.sim.kernel.vectors import ArrayMemory, CountedGhost, GhostMemory, NotFinite, PassCounter, memory_for


def test_arrays_have_the_dtype_of_the_model_and_its_bytes() -> None:
    memory = memory_for(np.zeros(3, np.float32))
    assert isinstance(memory, ArrayMemory)
    made = memory.empty(5)
    assert (made.dtype, len(made)) == (np.float32, 5)
    assert memory.bytes_of(made).nbytes == 20


def test_joined_parts_are_copies_in_their_order() -> None:
    parts = [np.array([1.0, 2.0]), np.array([]), np.array([3.0])]
    whole = ArrayMemory(parts[0]).join(parts)
    parts[0][0] = 9
    assert whole.tolist() == [1, 2, 3]


def test_ghosts_have_lengths_and_no_bytes() -> None:
    memory = memory_for(Ghost(3))
    assert isinstance(memory, GhostMemory)
    assert len(memory.join([Ghost(3), Ghost(4)])) == 7
    with pytest.raises(TypeError, match="a size and no bytes"):
        memory.bytes_of(Ghost(3))


def test_a_vector_that_brings_its_memory_keeps_it() -> None:
    class Other:
        memory = ArrayMemory(np.zeros(1))

    assert memory_for(Other()) is Other.memory


def test_counted_ghosts_count_passes_over_memory() -> None:
    counter = PassCounter()
    w, g = CountedGhost(10, counter), CountedGhost(10, counter)
    assert len((w * 0.5)[2:4] / 3.0) == 2
    assert counter() == 0, "a product with a number is no pass"
    new = w - g * 0.1
    assert counter() == 40
    assert new is not w
    assert counter() + (new * g).nbytes == 80
    assert counter() == 80
    assert len(w.spliced(slice(0, 5), g[:5])) == 10
    assert counter() == 120
    memory = memory_for(w)
    assert (memory.empty(5) + memory.join([w[:2], g[:3]])).nbytes == 20
    assert counter() == 140
    assert len(w.copied()) == 10
    assert counter() == 140


def test_whatever_is_added_to_a_nan_or_it_to_is_one_and_so_are_parts_of_it() -> None:
    bad, ghost = NotFinite(8, 3), Ghost(8)
    made = [bad + ghost, ghost + bad, ghost - bad, ghost * bad, bad * 0.5, 0.5 * bad, ghost / bad, bad - bad, bad**2]
    made += [bad[2:5], (ghost + bad * 2.0)[2:5]]
    assert {type(v) for v in made} == {NotFinite}
    assert {v.number for v in made} == {3}
    assert [len(v) for v in made[-2:]] == [3, 3]
    assert not is_finite(bad)
    assert is_finite(ghost + ghost)
