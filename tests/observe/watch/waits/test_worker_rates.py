"""Who waits for whom, as the trace tells it."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.scheme import make
from paceline.core.trace import Applied, Decided, Span
from paceline.observe.watch.state import PageState
from tests.observe.watch.played import simulated


def test_local_steps_between_exchanges_are_counted() -> None:
    state = simulated("localsgd", (1, 1))
    assert state.workers[0].steps_a_round == pytest.approx(make("localsgd", {}).tau, rel=0.2)
    assert simulated("bsp", (1, 1)).workers[0].steps_a_round == pytest.approx(1.0)


def test_the_trace_names_whom_a_worker_waits_for() -> None:
    for scheme in ("bsp", "ssp"):
        wait = simulated(scheme, (1, 1, 1, 4)).waits.wait(2)
        assert wait is not None
        assert wait.whom == (3,)


def test_a_wait_that_is_heard_of_before_the_step_it_follows_goes_on_until_the_next_step() -> None:
    state = PageState(2)
    state.add(Decided(at=0.101, party="server 0", rank=0, verdict="wait", reason="waits for worker 1", whom=(1,)))
    state.add(Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=4))
    assert state.standing(0) == "waiting"
    state.add(Span(at=0.6, rank=0, activity="computing", seconds=0.1, steps=1, samples=4))
    assert state.waits.wait(0) is None


def test_whoever_has_waited_is_not_waiting_while_it_computes() -> None:
    state = PageState(2)
    state.add(Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=4, exchanges=1))
    state.add(Decided(at=0.11, party="server 0", rank=0, verdict="wait", reason="waits for worker 1", whom=(1,)))
    assert state.standing(0) == "waiting"
    state.add(Span(at=0.2, rank=0, activity="waiting", seconds=0.1))
    assert state.standing(0) == "computing"  # of its next step nothing is written before it is over


def test_a_server_that_is_heard_before_the_worker_says_itself_when_the_wait_was_over() -> None:
    def decided(at: float, shard: int) -> Decided:
        return Decided(at=at, party=f"server {shard}", rank=0, verdict="wait", reason="waits for worker 1", whom=(1,))

    state = PageState(2)
    state.add(Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=4, exchanges=1))
    state.add_all(decided(0.11, shard) for shard in (0, 1))
    for shard, standing in ((0, "waiting"), (1, "communicating")):
        state.add(Applied(at=0.12, shard=shard, ranks=(0, 1), version=1, staleness=0, weight=1.0, samples=8))
        assert state.standing(0) == standing
