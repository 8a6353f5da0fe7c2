"""One party takes messages, changes or drops those beyond their bounds, and counts the strikes of who sends them.

case                                       handled       strike   expels
within the bounds                          as it is      -
beyond them                                the nearest   yes      a worker, each third time
beyond them, none nearest                  nothing       yes      a worker, at once
the same, an answer                        nothing       yes      each third time
of a server or the evaluator               the nearest   yes      never
of the coordinator                         as it is      -
a false claim that a role has found        -             yes      each third time, or at once
a worker or the evaluator receives it      the same      yes      never
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, EVALUATOR, Party, server, worker
from paceline.core.paramserver.gated_server import Push
from paceline.core.sharding import Layout
from paceline.core.validation.bounds import SAMPLES_MAX
from paceline.core.validation.message_admission import EPOCHS_AHEAD, FaultyMessage, MessageAdmission, limits_of
from paceline.core.vector import Ghost

PLAN = control.Plan(
    workers=4,
    servers=2,
    length=200,
    layout=Layout((0, 200), ()),
    seconds_per_step=(),
    optimizer="",
    samples=3000,
    contribution=32,
    epoch_samples=1000,
)
W3 = worker(3)


def push(clock: int, samples: int = 32, length: int = 100) -> Push:
    return Push(g=Ghost(length), clock=clock, samples=samples)


def planned(me: Party = server(0), *, late: bool = False, **kwargs: Any) -> MessageAdmission:  # noqa: B008
    admission = MessageAdmission(me, **kwargs)
    admission.planned(PLAN, late=late)
    return admission


def faulty(admission: MessageAdmission, src: Party, message: Any, **kwargs: Any) -> FaultyMessage:
    found = admission.admit(src, message, length=100, **kwargs)
    assert found is not None
    return found


def test_what_is_within_its_bounds_is_handled_as_it_is() -> None:
    admission = planned()
    assert [admission.admit(W3, push(clock), length=100) for clock in (1, 2, 3)] == [None] * 3
    assert not admission.refused(W3)


def test_each_third_strike_of_a_worker_expels_it() -> None:
    admission = planned()
    found = [faulty(admission, W3, push(clock, samples=33)) for clock in range(1, 8)]
    assert [message.near and message.near.samples for message in found] == [32] * 7
    assert [message.strike.number for message in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [message.strike.expels for message in found] == [False, False, True, False, False, True, False]
    third = found[2].strike
    assert third.reason == f"false claims: 3 messages beyond their bounds, the last: {third.why}"
    assert third.why == "Push: samples is 33, which has to be between 0 and 32"
    assert admission.refused(W3)
    assert not admission.refused(worker(1))


def test_what_has_no_nearest_message_is_dropped_and_expels_at_once_unless_it_answers() -> None:
    admission = planned()
    dropped = faulty(admission, W3, push(1, length=3))
    assert (dropped.near, dropped.strike.expels) == (None, True)
    assert dropped.strike.reason == f"false claims: a message that cannot be: {dropped.strike.why}"
    answer = faulty(admission, worker(2), push(1, length=3), is_answer=True)
    assert (answer.near, answer.strike.reason, answer.strike.expels) == (None, None, False)


@pytest.mark.parametrize(
    ("me", "src", "reason", "expels"),
    [
        (server(0), W3, True, True),
        (COORDINATOR, W3, True, True),
        (worker(0), W3, True, False),
        (EVALUATOR, W3, True, False),
        (server(0), server(1), False, False),
        (COORDINATOR, EVALUATOR, False, False),
    ],
)
def test_servers_and_the_coordinator_have_workers_expelled_and_nobody_else(
    me: Party, src: Party, reason: bool, expels: bool
) -> None:
    strike = planned(me).strike(src, "it cannot be", at_once=True)
    assert (strike.reason is not None, strike.expels) == (reason, expels)
    assert (strike.src, strike.why, strike.number) == (src, "it cannot be", 1)


def test_the_coordinator_is_trusted() -> None:
    admission = planned()
    assert admission.admit(COORDINATOR, push(70, samples=-1)) is None
    assert not admission.refused(COORDINATOR)


def test_clocks_of_the_next_incarnation_begin_anew_and_its_strikes_stay() -> None:
    admission = planned()
    assert [admission.admit(W3, push(clock), length=100) for clock in (1, 2, 3)] == [None] * 3
    assert faulty(admission, W3, push(3)).strike.number == 1
    admission.came(W3)
    assert admission.admit(W3, push(2), length=100) is None
    assert faulty(admission, W3, push(2)).strike.number == 2


def test_all_clocks_are_forgotten_where_servers_went_back() -> None:
    admission = planned()
    for clock in range(1, 6):
        assert admission.admit(W3, push(clock), length=100) is None
    admission.servers_went_back()
    assert admission.admit(W3, push(3), length=100) is None
    assert admission.admit(worker(1), push(40), length=100) is None
    assert not admission.strikes


@pytest.mark.parametrize(("late", "resumed", "any_first"), [(0, 0, False), (1, 0, True), (0, 1, True)])
def test_who_was_not_there_at_the_beginning_takes_any_first_clock(late: int, resumed: int, any_first: bool) -> None:
    admission = MessageAdmission(server(0))
    admission.planned(dataclasses.replace(PLAN, resumed=bool(resumed)), late=bool(late))
    assert (admission.admit(W3, push(40), length=100) is None) == any_first


def test_a_clock_may_come_again_as_often_as_the_driver_allows() -> None:
    for repeats in (0, 2):
        admission = planned(repeats=repeats)
        assert admission.admit(W3, push(1), length=100) is None
        again = [admission.admit(W3, push(1), length=100) is None for _ in range(3)]
        assert again == [one < repeats for one in range(3)]


def test_limits_follow_from_the_plan() -> None:
    limits = limits_of(PLAN)
    assert (limits.workers, limits.servers, limits.length) == (4, 2, 200)
    assert (limits.samples, limits.epoch_samples, limits.epochs, limits.repeats) == (32, 1000, 3 + EPOCHS_AHEAD, 0)
    unknown = limits_of(dataclasses.replace(PLAN, samples=0, contribution=0))
    assert (unknown.samples, unknown.epochs) == (SAMPLES_MAX, 0)
    assert limits_of(dataclasses.replace(PLAN, samples=3001)).epochs == 4 + EPOCHS_AHEAD
