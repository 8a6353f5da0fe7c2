"""Schedules for every number of members up to 64: the sum is exact, and what it costs is what theory says."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest

from paceline.core.collective import PEERS, Schedule, schedule_for
from tests.core.collective.every_schedule import TELLING, schedules
from tests.core.collective.members import average

UP_TO = range(2, 65)


SOME = [2, 3, 5, 8, 13, 22]


@pytest.mark.parametrize("n", TELLING)
def test_each_member_sends_what_theory_says(n: int) -> None:
    p = 1 << (n.bit_length() - 1)
    optimum = {Fraction(2 * (n - 1), n)}
    sent = {name: amounts(schedule_for(name, n)) for name in PEERS}
    assert sent["ring"] == sent["pairwise"] == optimum
    in_core = Fraction(2 * (p - 1), p)
    folded = {in_core, Fraction(1), in_core + 1} if p > n - p else {Fraction(1), in_core + 1}
    assert sent["butterfly"] == ({in_core} if n == p else folded)
    # Two blocks cost a member at most the smaller block's share more than halving and doubling alone.
    assert max(sent["blocks"]) <= Fraction(4)
    assert sent["blocks"] == optimum or n != p


def amounts(schedule: Schedule) -> set[Fraction]:
    """In vectors."""
    return {Fraction(schedule.bytes_moved(i, 1)[0]).limit_denominator(4096) for i in range(schedule.workers)}


@pytest.mark.parametrize("n", SOME)
def test_what_is_added_up_is_the_least_possible(n: int) -> None:
    """n - 1 additions of the whole vector in all; ring and pairwise share them out evenly."""
    for schedule in schedules(n):
        length = 2 * schedule.pieces
        results = average(schedule, [[1.0] * length for _ in range(n)], [1.0] * n)
        assert sum(result.added for result in results) == (n - 1) * length
        if schedule.name in ("ring", "pairwise"):
            assert {result.added for result in results} == {(n - 1) * length // n}


@pytest.mark.parametrize("n", TELLING)
def test_the_number_of_steps_is_what_theory_says(n: int) -> None:
    log = n.bit_length() - 1
    extra = 0 if n == 1 << log else 2
    assert len(schedule_for("ring", n).steps) == len(schedule_for("pairwise", n).steps) == 2 * (n - 1)
    assert len(schedule_for("butterfly", n).steps) == 2 * log + extra
    assert len(schedule_for("blocks", n).steps) == 2 * log + 2 * (n.bit_count() - 1)


@pytest.mark.parametrize("n", TELLING)
def test_a_member_sends_and_receives_once_a_step_in_ring_pairwise_and_butterfly(n: int) -> None:
    for name in ("ring", "pairwise", "butterfly"):
        for step in schedule_for(name, n).steps:
            assert max(Counter(t.src for t in step).values()) == max(Counter(t.dst for t in step).values()) == 1


@pytest.mark.parametrize("n", TELLING)
def test_in_blocks_a_member_has_one_partner_at_a_time_in_the_larger_of_two_blocks(n: int) -> None:
    """Only between blocks may one send or receive more than once: a member of the smaller block."""
    size: list[int] = []
    for bit in reversed(range(n.bit_length())):
        size += [1 << bit] * (n & 1 << bit)
    for step in schedule_for("blocks", n).steps:
        sends, receives = Counter(t.src for t in step), Counter(t.dst for t in step)
        assert all(sends[t.src] == 1 or size[t.src] < size[t.dst] for t in step)
        assert all(receives[t.dst] == 1 or size[t.dst] < size[t.src] for t in step)


@pytest.mark.parametrize("n", TELLING)
def test_only_one_member_of_a_host_talks_to_other_hosts(n: int) -> None:
    hosts = tuple(tuple(range(h, n, 3)) for h in range(min(3, n)))
    home = {member: host for host in hosts for member in host}
    away = {
        i
        for step in schedule_for("hierarchical", n, hosts).steps
        for t in step
        for i in (t.src, t.dst)
        if home[t.src] != home[t.dst]
    }
    assert away == {host[0] for host in hosts}


def test_sixteen_pieces_over_hosts_of_unlike_size_are_cut_finely_enough_for_all() -> None:
    hosts = ((0, 1, 2), (3, 4), (5,), (6, 7, 8, 9))
    assert schedule_for("hierarchical", 10, hosts).pieces == math.lcm(3, 2, 1, 4, 4)
