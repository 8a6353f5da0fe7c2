"""Each way in which a run can end wrongly is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.core.coordination.lifecycle import TARGET_REACHED, StopRule
from paceline.core.trace import Ended, MemberChange
from paceline.sim.checking.oracles.end_of_run import ASKED, EndOfRun, StopWish

W0, W1, S0 = ("worker 0", 0), ("worker 1", 1), ("server 0", 0)
BY_HAND = StopWish(StopRule(), asked_at_s=(3.0, 4.0))


def oracle(wish: StopWish = BY_HAND, done: Callable[[], int] = lambda: 0) -> EndOfRun:
    return EndOfRun(AssertionError, wish, done)


def ended(reason: str = ASKED, at: float = 3.0) -> Ended:
    return Ended(at=at, reason=reason)


def change(event: str, reason: str = "", at: float = 9.0) -> MemberChange:
    return MemberChange(at=at, party="worker 1", event=event, reason=reason)


def test_a_run_that_ends_as_it_should_breaks_nothing() -> None:
    of = oracle()
    of.recorded(ended())
    for process, what in ((W0, "Stop"), (W1, "Stop"), (S0, "Finish"), (W0, "Finish")):
        of.told(process, what, ())
    assert of.unsaved() == [S0, W0]
    of.saved(S0)
    of.gone(W0)
    of.told(S0, "Exit", ())
    of.finished()
    assert of.over


@pytest.mark.parametrize(
    ("wish", "end", "what"),
    [
        (BY_HAND, ended(at=3.5), "interrupted was due before"),
        (StopWish(StopRule(seconds=5.0)), ended("seconds", 4.0), r"5\.000 s is due"),
        (StopWish(StopRule(seconds=5.0)), ended("asked to", 6.0), "seconds was due before"),
        (StopWish(StopRule(samples=8)), ended("epochs"), "7 samples are in the model; 8 are wanted"),
        (
            StopWish(StopRule(target_accuracy=0.5), evaluations=((1.0, 0.4), (2.0, 0.6))),
            ended(TARGET_REACHED, 1.0),
            r"2\.000 s is due",
        ),
    ],
)
def test_the_reason_must_hold_and_be_the_first_one(wish: StopWish, end: Ended, what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        oracle(wish, done=lambda: 7).recorded(end)


def test_it_ends_once_and_nobody_joins_afterwards() -> None:
    of = oracle()
    of.recorded(ended())
    with pytest.raises(AssertionError, match="ends twice"):
        of.recorded(ended())
    with pytest.raises(AssertionError, match="joins a run that has been told to stop"):
        of.recorded(change("returned"))
    of.finished()
    with pytest.raises(AssertionError, match="over twice"):
        of.finished()


def test_only_who_hangs_is_lost_as_stuck() -> None:
    stuck = change("lost", "alive, but no step for 41.0 s")
    oracle(StopWish(StopRule(), hangs=((1, 2.0),))).recorded(stuck)
    for hangs in (((0, 2.0),), ((1, 10.0),)):
        with pytest.raises(AssertionError, match="does not hang"):
            oracle(StopWish(StopRule(), hangs=hangs)).recorded(stuck)


def test_the_parties_are_told_once_and_in_order() -> None:
    of = oracle()
    with pytest.raises(AssertionError, match="the run has not ended"):
        of.told(W0, "Stop", ())
    of.recorded(ended())
    of.told(W1, "Stop", ["worker 0", "worker 1"])
    with pytest.raises(AssertionError, match="told Stop twice"):
        of.told(W1, "Stop", ())
    with pytest.raises(AssertionError, match="worker 1 still trains"):
        of.told(S0, "Finish", ["worker 1"])
    of.told(W0, "Finish", ())
    of.saved(S0)
    with pytest.raises(AssertionError, match="worker 0 has not saved"):
        of.told(W1, "Exit", ())
