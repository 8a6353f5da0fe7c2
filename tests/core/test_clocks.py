import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.clocks import Clocks

moves = st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 5))), max_size=60)


@given(st.integers(1, 5), moves)
def test_low_is_the_minimum_of_the_clocks_whatever_happens(workers: int, moves: list[tuple[int, int | None]]) -> None:
    clocks, naive, low = Clocks(range(workers)), dict.fromkeys(range(workers), 0), 0
    for rank, forward in moves:
        if rank not in naive:
            assert rank not in clocks
            continue
        if forward is None:
            del naive[rank]
            moved = clocks.drop(rank)
        else:
            naive[rank] += forward
            moved = clocks.tick(rank, naive[rank])
        before, low = low, min(naive.values(), default=low)
        assert (clocks.low, moved) == (low, low > before)
        assert {rank: clocks[rank] for rank in clocks.ranks()} == naive
        assert clocks.slowest() == [rank for rank, clock in naive.items() if clock == low]
        assert len(clocks) == len(naive)


def test_a_clock_never_runs_backwards() -> None:
    clocks = Clocks([3])
    clocks.tick(3, 2)
    with pytest.raises(ValueError, match="clock of worker 3 cannot go from 2 back to 1"):
        clocks.tick(3, 1)
    assert clocks.low == 2


def test_low_stays_where_it_was_when_nobody_is_left() -> None:
    clocks = Clocks([0, 1])
    clocks.tick(0, 5)
    assert clocks.drop(1)
    assert clocks.low == 5
    assert not clocks.drop(0)
    assert clocks.low == 5
