"""What a run with processes of other versions must keep, by made-up events."""

from __future__ import annotations

import math

import pytest

from paceline.core.parties.first_contact import PROTOCOL_VERSION, why_refused
from paceline.sim.checking.oracles.upgrades import OTHERS, UpgradeOracle, Upgrades

NEWER = OTHERS[1]
WHY = why_refused(PROTOCOL_VERSION, NEWER)


class Clock:
    now = 0.0


def oracle_of(clock: Clock, **other: tuple[int, float, float]) -> UpgradeOracle:
    named = {name.replace("_", " "): span for name, span in other.items()}
    return UpgradeOracle(AssertionError, Upgrades(other=named), lambda: clock.now)


def test_a_process_has_the_version_that_its_host_has_when_it_starts() -> None:
    upgrades = Upgrades(other={"worker 1": (NEWER, 2.0, 5.0), "worker 2": (NEWER, 1.0, math.inf)})
    assert [upgrades.version("worker 1", at) for at in (1.9, 2.0, 4.9, 5.0)] == [
        PROTOCOL_VERSION,
        NEWER,
        NEWER,
        PROTOCOL_VERSION,
    ]
    assert upgrades.version("worker 0", 3.0) == PROTOCOL_VERSION
    assert (upgrades.right_since("worker 1"), upgrades.right_since("worker 2")) == (5.0, math.inf)


def test_who_is_refused_again_and_again_must_be_waited_for_the_longer() -> None:
    clock = Clock()
    oracle = oracle_of(clock)
    for pause in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        oracle.refused("worker 1", NEWER, WHY)
        clock.now += pause
        oracle.started("worker 1")
    oracle.refused("worker 1", NEWER, WHY)
    clock.now += 29.0
    with pytest.raises(AssertionError, match="is tried again after 29.00 s, refused 8 times in a row"):
        oracle.started("worker 1")
    oracle.joined(("worker 1", 1), PROTOCOL_VERSION)
    oracle.refused("worker 1", NEWER, WHY)
    clock.now += 1.0
    oracle.started("worker 1")


def test_one_of_the_right_version_is_let_in_and_one_of_another_is_not() -> None:
    oracle = oracle_of(Clock())
    oracle.joined(("worker 1", 1), PROTOCOL_VERSION)
    with pytest.raises(AssertionError, match=f"takes part, and speaks version {NEWER}"):
        oracle.joined(("worker 1", 1), NEWER)
    with pytest.raises(AssertionError, match="is refused though it has the version of the run"):
        oracle.refused("worker 1", PROTOCOL_VERSION, WHY)
    with pytest.raises(AssertionError, match="is not named"):
        oracle.refused("worker 1", NEWER, "go away")


def test_a_process_whose_end_was_reported_does_not_join() -> None:
    oracle = oracle_of(Clock())
    oracle.reported(("worker 1", 1))
    oracle.joined(("worker 1", 2), PROTOCOL_VERSION)
    with pytest.raises(AssertionError, match="incarnation 1 of worker 1 joins, and its end was reported before"):
        oracle.joined(("worker 1", 1), PROTOCOL_VERSION)


def test_a_failure_for_one_that_was_refused_says_so() -> None:
    oracle = oracle_of(Clock())
    oracle.failed("lost server 0")
    oracle.refused("server 0", NEWER, WHY)
    oracle.failed("lost worker 2")
    oracle.failed(f"waited 60 s for server 0 to be restored; its last process was refused: {WHY}")
    with pytest.raises(AssertionError, match="the run fails for server 0, which was refused, and does not say so"):
        oracle.failed("waited 60 s for server 0 to be restored")


def test_all_take_part_whose_hosts_have_had_the_right_version_for_long() -> None:
    oracle = oracle_of(Clock(), worker_1=(NEWER, 2.0, 5.0), worker_2=(NEWER, 2.0, math.inf))
    oracle.all_are_back(["worker 1"], [], 20.0)
    oracle.all_are_back([], ["worker 1"], 20.0)
    with pytest.raises(AssertionError, match="worker 1 does not take part"):
        oracle.all_are_back(["worker 0"], [], 20.0)


def test_the_user_reads_of_refusals_once() -> None:
    oracle = oracle_of(Clock())
    oracle.shown(f"worker 1: {WHY}; it is tried again")
    oracle.shown("worker 1 is not started again: --restarts 3")
    oracle.shown(f"worker 2: {WHY}; it is tried again")
    with pytest.raises(AssertionError, match="is said again"):
        oracle.shown(f"worker 1: {WHY}; it is tried again")
