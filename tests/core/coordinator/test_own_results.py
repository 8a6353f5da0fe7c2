"""Whom the coordinator expels for results that only the worker itself sees."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.decisions import Action, RunFailure, SendMessage, WriteRecord
from paceline.core.coordination.lifecycle import OwnResultRule
from paceline.core.coordination.party import Party, worker
from paceline.core.trace import OWN, Gated, MemberChange
from tests.core.coordinator.test_machine import READY, Driver, hello

W0, W1, W2 = map(worker, range(3))


class Workers(Driver):
    """Says for each worker what became of its results."""

    def __init__(self, workers: int = 3, strikes: int = 10, workers_min: int = 1) -> None:
        super().__init__(workers=workers, own_results=OwnResultRule(strikes=strikes, workers_min=workers_min))
        self.trains()
        self.number = dict.fromkeys(range(workers), 0)
        self.exchanges = dict.fromkeys(range(workers), 0)

    def result(self, who: Party, *, finite: bool, mean: bool = False) -> list[Action]:
        """What follows from one result, of which a worker tells if it is bad."""
        self.number[who.index] += 1
        return self.told(who, loop_messages.OwnResult(number=self.number[who.index], finite=finite, mean=mean))

    def bad(self, who: Party, times: int, *, mean: bool = False) -> list[Action]:
        return [action for _ in range(times) for action in self.result(who, finite=False, mean=mean)]

    def report(self, *whom: Party, exchanges: int = 1) -> None:
        """Each of them reports that it has made more exchanges."""
        for who in whom:
            self.exchanges[who.index] += exchanges
            nothing = dict.fromkeys(("seconds_computing", "seconds_waiting", "seconds_communicating"), 0.0)
            sums: dict[str, Any] = dict.fromkeys(("steps", "samples", "bytes_up", "bytes_down"), 0)
            self.told(who, control.Progress(**nothing, **sums, exchanges=self.exchanges[who.index]))


def drained(actions: list[Action]) -> list[tuple[Party, str]]:
    sends = [action for action in actions if isinstance(action, SendMessage)]
    return [(send.to[0], send.message.reason) for send in sends if isinstance(send.message, loop_messages.Drain)]


WHY = "bad numbers: all of its last 10 contributions were refused"


def test_the_tenth_bad_part_of_a_mean_is_the_last_and_the_others_go_on() -> None:
    workers = Workers()
    assert drained(workers.bad(W0, 9, mean=True)) == []
    assert drained(workers.bad(W0, 3, mean=True)) == [(W0, f"expelled: {WHY}")], "it is told once"
    actions = workers.told(W0, control.Left(reason=f"expelled: {WHY}", drained=True))
    (change,) = [a.record for a in actions if isinstance(a, WriteRecord) and isinstance(a.record, MemberChange)]
    assert (change.party, change.event) == ("worker 0", "expelled")
    assert change.reason == f"{WHY}; it trains no more; 2 of 3 continue"
    assert workers.bad(W0, 1, mean=True) == [], "it trains no more"
    assert W0 in workers.machine.run.roster.banned
    assert not any(isinstance(action, RunFailure) for action in actions)


def test_one_that_the_run_still_needs_stays_until_the_end_and_is_not_let_in_again() -> None:
    workers = Workers()
    workers.bad(W0, 10, mean=True)
    workers.told(W0, control.Left(reason="expelled"))
    roster = workers.machine.run.roster
    assert (W0 in roster.banned, W0 in roster.lost, W0 in roster.training) == (True, False, False)
    workers.machine.lost(W0, "it was killed")
    workers.taken()
    assert drained(workers.told(W0, hello(incarnation=1))) == []
    assert W0 not in roster.joining


def test_each_bad_result_is_in_the_trace_with_its_number() -> None:
    workers = Workers()
    workers.number[1] = 40
    written = [a.record for a in workers.bad(W1, 2) if isinstance(a, WriteRecord)]
    assert [(r.shard, r.rank, r.number, r.refused) for r in written if isinstance(r, Gated)] == [
        (OWN, 1, 41, True),
        (OWN, 1, 42, True),
    ]
    assert workers.result(W1, finite=True) == []


def test_in_gossip_the_others_must_have_finished_a_result_since() -> None:
    workers = Workers()
    workers.report(W1, W2)
    assert drained(workers.bad(W0, 12)) == [], "nobody has reported since"
    workers.report(W1, W2)
    assert drained(workers.bad(W0, 12)) == [], "what grew may have grown before"
    workers.report(W1, W2, exchanges=0)
    assert drained(workers.bad(W0, 12)) == [], "nothing was finished"
    workers.report(W1)
    assert drained(workers.bad(W0, 1)) == [(W0, f"expelled: {WHY}")], "one finite, none bad"


@pytest.mark.parametrize(("nth", "expelled"), [(11, True), (12, False)])
def test_ten_among_its_last_hundred_are_enough_and_no_fewer(nth: int, expelled: bool) -> None:
    workers, found = Workers(), list[tuple[Party, str]]()
    for number in range(1, 300):
        if number % nth == 0:
            found += drained(workers.result(W0, finite=False, mean=True))
        elif number % nth == 1:
            workers.result(W0, finite=True, mean=True)
        else:
            workers.number[0] += 1
    why = [(W0, "expelled: bad numbers: 10 of its last 100 contributions were refused")]
    assert found == (why if expelled else [])


def test_as_many_bad_others_as_finite_ones_expel_nobody() -> None:
    workers = Workers()
    workers.result(W1, finite=False, mean=True)
    assert drained(workers.bad(W0, 20, mean=True)) == []
    workers.result(W1, finite=True, mean=True)
    assert [who for who, _ in drained(workers.bad(W0, 1, mean=True))] == [W0]


def test_results_of_nobody_that_are_finite_end_the_run() -> None:
    workers = Workers(workers=2)
    assert not any(isinstance(action, RunFailure) for action in workers.bad(W0, 30))
    workers.bad(W1, 1)
    workers.result(W1, finite=True)
    workers.bad(W0, 1)
    (failure,) = [action for action in workers.bad(W1, 1) if isinstance(action, RunFailure)]
    assert failure.cause == (
        "the model has diverged: the last 32 results, of every worker, had NaN or infinity (the last: number 3 of "
        "worker 1); lower --lr or give --clip-norm"
    )


def test_one_who_is_alone_has_eight_in_a_row_at_most() -> None:
    workers = Workers(workers=1)
    assert not any(isinstance(action, RunFailure) for action in workers.bad(W0, 7))
    workers.result(W0, finite=True)
    assert not any(isinstance(action, RunFailure) for action in workers.bad(W0, 7))
    assert any(isinstance(action, RunFailure) for action in workers.bad(W0, 1))


@pytest.mark.parametrize("rule", [{"strikes": 0}, {"workers_min": 3}])
def test_nobody_is_expelled_where_that_is_switched_off_or_the_run_needs_all(rule: dict[str, int]) -> None:
    workers = Workers(**rule)
    actions = workers.bad(W0, 40, mean=True)
    assert drained(actions) == []
    assert sum(isinstance(a, WriteRecord) and isinstance(a.record, Gated) for a in actions) == 40


def test_a_later_incarnation_begins_without_strikes_and_its_numbers_go_on() -> None:
    workers = Workers(workers=3)
    workers.bad(W0, 9, mean=True)
    workers.machine.lost(W0, "it was killed")
    workers.taken()
    workers.told(W0, hello(incarnation=1))
    for action in workers.told(W0, READY):
        if isinstance(action, SendMessage) and isinstance(action.message, control.WorkerJoined):
            for other in action.to:
                workers.told(other, control.Aware(view=action.message.view))
    assert W0 in workers.machine.run.roster.training
    workers.number[0] = 0
    actions = workers.bad(W0, 1, mean=True)
    assert drained(actions) == []
    assert [a.record.number for a in actions if isinstance(a, WriteRecord) and isinstance(a.record, Gated)] == [10]
    assert [who for who, _ in drained(workers.bad(W0, 9, mean=True))] == [W0]
