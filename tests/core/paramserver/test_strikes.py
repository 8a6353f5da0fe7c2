"""Who is put out for what servers refuse, and who is not."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from paceline.core.paramserver.gradient_check import GradientCheckPolicy

BAD, GOOD = math.nan, 1.0


def expel(pushes: Iterable[tuple[int, float]], strikes: int = 10, mode: str = "warn") -> list[tuple[int, str]]:
    """Who was put out while these (rank, number) came, and why."""
    found: list[tuple[int, str]] = []
    gate = GradientCheckPolicy(mode=mode, strikes=strikes).gate(
        lambda v, onto: float(np.linalg.norm(v)), 4, 0, None, lambda rank, why: found.append((rank, why))
    )
    assert gate is not None
    for rank, number in pushes:
        gate.push(0.0, rank, np.array([number]))
    return found


def test_the_tenth_that_is_refused_in_a_row_is_the_last() -> None:
    pushes = [(rank, BAD if rank == 3 else GOOD) for _ in range(10) for rank in range(4)]
    assert expel(pushes[:-1]) == []
    assert expel(pushes) == [(3, "bad numbers: all of its last 10 contributions were refused")]


def test_ten_among_its_last_hundred_are_enough_and_no_fewer() -> None:
    def every(nth: int) -> list[tuple[int, float]]:
        return [(rank, BAD if rank == 1 and n % nth == 0 else GOOD) for n in range(300) for rank in range(2)]

    assert expel(every(11))[0] == (1, "bad numbers: 10 of its last 100 contributions were refused")
    assert expel(every(12)) == []


def test_what_is_refused_of_everybody_puts_nobody_out() -> None:
    good = [(rank, GOOD) for rank in range(4)]
    assert expel([*good, *([(0, BAD)] * 20)]) == [], "nobody else has sent anything since"
    assert expel([*good, *([(0, BAD), (1, BAD), (2, GOOD)] * 9), (0, BAD)]) == [], "as many pass as are refused"
    assert expel([*good, *([(0, BAD), (1, BAD), (2, GOOD), (3, GOOD)] * 10)]) != []


def test_a_norm_that_changes_for_all_puts_nobody_out() -> None:
    pushes = [(rank, 1.0 if n < 16 else 10.0) for n in range(64) for rank in range(4)]
    assert expel(pushes, mode="reject") == []


def test_what_is_used_all_the_same_is_no_strike_and_none_may_be_counted() -> None:
    wild = [(rank, 100.0 if rank == 2 else GOOD) for _ in range(40) for rank in range(4)]
    assert expel(wild) == []
    assert [rank for rank, _ in expel(wild, mode="reject")][:1] == [2]
    assert expel(wild, mode="reject", strikes=0) == []
