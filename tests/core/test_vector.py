import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.vector import Ghost, Vector, cut, is_finite, splice


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_a_cut_covers_every_element_once_in_even_slices(length: int, shards: int) -> None:
    if shards > length:
        with pytest.raises(ValueError, match=f"cannot cut {length} trained parameters into {shards} parts"):
            cut(length, shards)
        return
    parts = cut(length, shards)
    assert [i for part in parts for i in range(length)[part]] == list(range(length))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_no_shards_is_no_cut() -> None:
    with pytest.raises(ValueError):
        cut(10, 0)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_a_ghost_has_the_size_of_an_array_and_no_numbers(length: int, begin: int, end: int) -> None:
    ghost, array = Ghost(length), np.zeros(length, np.float32)
    for g, a in [
        (ghost, array),
        (ghost[begin:end], array[begin:end]),
        (ghost + ghost, array + array),
        (ghost - ghost, array - array),
        (ghost * 2.0, array * 2.0),
        (2.0 * ghost, 2.0 * array),
    ]:
        assert (len(g), g.nbytes) == (len(a), a.nbytes)


def test_arrays_and_ghosts_are_vectors() -> None:
    assert isinstance(Ghost(1), Vector)
    assert isinstance(np.zeros(1), Vector)
    assert repr(Ghost(7)) == "Ghost(7)"


@given(st.integers(1, 50), st.data())
def test_a_splice_replaces_a_part_and_leaves_the_original(length: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, length))
    part = slice(begin, data.draw(st.integers(begin, length)))
    w, v = np.arange(length, dtype=np.float32), np.full(part.stop - part.start, -1, np.float32)
    before, spliced = w.copy(), splice(w, part, v)
    assert np.array_equal(w, before)
    assert np.array_equal(spliced[part], v)
    assert np.array_equal(np.delete(spliced, range(part.start, part.stop)), np.delete(w, range(part.start, part.stop)))
    assert len(splice(Ghost(length), part, Ghost(len(v)))) == length


def test_a_vector_is_finite_if_all_its_numbers_are() -> None:
    assert is_finite(np.ones(3, np.float32))
    assert is_finite(np.zeros(0, np.float32))
    assert is_finite(Ghost(3))
    assert not is_finite(np.array([1.0, np.nan]))
    assert not is_finite(np.array([1.0, -np.inf]))
