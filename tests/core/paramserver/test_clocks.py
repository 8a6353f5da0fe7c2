import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.paramserver.clocks import Clocks

moves = st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 5))), max_size=60)


@given(st.integers(1, 5), moves)
def test_low_and_high_are_those_of_the_clocks_whatever_happens(
    workers: int, moves: list[tuple[int, int | None]]
) -> None:
    clocks, naive, low, high = Clocks(range(workers)), dict.fromkeys(range(workers), 0), 0, 0
    for rank, forward in moves:
        moved = False
        if rank not in naive and forward is None:
            assert rank not in clocks
            naive[rank] = low
            clocks.add(rank)
        elif rank not in naive:
            continue
        elif forward is None:
            del naive[rank]
            moved = clocks.drop(rank)
        else:
            naive[rank] += forward
            moved = clocks.tick(rank, naive[rank])
        before, low, high = low, min(naive.values(), default=low), max(naive.values(), default=high)
        assert (clocks.low, clocks.high, moved) == (low, high, low > before)
        assert clocks == naive
        assert sorted(clocks.slowest()) == sorted(rank for rank, clock in naive.items() if clock == low)


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
    assert (clocks.low, clocks.high, clocks.slowest()) == (5, 5, [])


def test_the_slowest_are_told_in_the_order_in_which_they_came_there() -> None:
    clocks = Clocks([0, 1, 2])
    for rank in (1, 2, 0):
        clocks.tick(rank, 1)
    assert clocks.slowest() == [1, 2, 0]
    assert clocks.last_of_slowest() == 0


def test_a_newcomer_starts_where_the_slowest_are() -> None:
    clocks = Clocks([0, 1])
    for rank in (0, 1):
        clocks.tick(rank, 7)
    clocks.tick(0, 9)
    clocks.add(2)
    assert (clocks[2], clocks.low, clocks.high) == (7, 7, 9)
