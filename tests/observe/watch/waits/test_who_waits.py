"""What is gathered of waits, and the facts that make a verdict at once."""

from __future__ import annotations

import pytest

from paceline.core.trace import Applied, Decided, Ended, MemberChange, ResourceUse, Span
from paceline.observe.watch.waits.who_waits import WhoWaits


def step(rank: int, at: float, seconds: float, exchanges: int = 1) -> Span:
    return Span(at=at, rank=rank, activity="computing", seconds=seconds, steps=1, samples=8, exchanges=exchanges)


def barrier(steps_s: list[float], rounds: int = 100) -> WhoWaits:
    """Workers that all wait for the slowest, every round; no server names anybody."""
    waits, longest = WhoWaits(len(steps_s)), max(steps_s)
    for n in range(1, rounds + 1):
        for rank, step_s in enumerate(steps_s):
            at = n * longest
            waits.add(step(rank, at - longest + step_s, step_s))
            waits.add(Span(at=at, rank=rank, activity="waiting", seconds=longest - step_s))
    return waits


def alive(waits: WhoWaits, at: float) -> None:
    """A process says what it uses, so the run's time goes on."""
    waits.add(ResourceUse(at=at, party="worker 0", memory_bytes=1, cores=0.0))


def test_a_run_just_begun_has_no_verdict_before_ten_exchanges() -> None:
    assert barrier([0.1, 0.4], rounds=9).verdict.kind == "begun"
    assert barrier([0.1, 0.4], rounds=30).verdict.ranks == (1,)


def test_of_two_the_slow_one_is_named_for_what_the_other_would_gain() -> None:
    verdict = barrier([0.1, 0.4]).verdict
    assert verdict.straggler is not None
    assert (verdict.kind, verdict.ranks, verdict.alert) == ("workers", (1,), "worker")
    assert verdict.straggler.gain == pytest.approx(4.0, rel=0.01)
    assert verdict.straggler.cost == pytest.approx(40.0), "alone the other one does twice of what both do now"
    assert verdict.waited == pytest.approx(0.75, rel=0.01)


def test_among_many_speeds_the_slowest_are_named_or_that_they_are_uneven() -> None:
    spread = barrier([0.1 + rank / 50 for rank in range(16)]).verdict
    assert spread.kind == "workers"
    assert set(spread.ranks) == set(range(16 - len(spread.ranks), 16))
    assert barrier([0.1, 0.4, 0.4]).verdict.kind == "uneven", "both of the slow ones are as many as no few"


def test_where_equal_workers_wait_for_the_exchange_it_is_named() -> None:
    waits = WhoWaits(2)
    for n in range(1, 101):
        for rank in range(2):
            waits.add(step(rank, n * 0.4 - 0.3, 0.1))
            waits.add(Span(at=n * 0.4, rank=rank, activity="waiting", seconds=0.3))
    assert (waits.verdict.kind, waits.verdict.alert) == ("exchange", "server")


def test_servers_that_take_all_and_hold_nobody_make_no_straggler() -> None:
    waits = WhoWaits(2)
    for n in range(1, 200):
        for rank, own in enumerate((0.1, 0.5)):
            at = n * (own + 0.2)
            waits.add(step(rank, at - 0.2, own))
            waits.add(Applied(at=at, shard=0, ranks=(rank,), version=n, staleness=0, weight=1.0, samples=8))
            waits.add(Span(at=at, rank=rank, activity="waiting", seconds=0.2))
    assert waits.verdict.kind == "exchange"


def test_a_stall_names_whom_the_waiting_workers_wait_for() -> None:
    waits = barrier([0.1, 0.1, 0.1])
    end = waits.now
    for rank in (0, 1):
        waits.add(step(rank, end + 0.1, 0.1))
        waits.add(Decided(at=end + 0.1, party="server 0", rank=rank, verdict="wait", reason="waits", whom=(2,)))
    alive(waits, end + 4.0)
    assert waits.verdict.kind != "stall"
    alive(waits, end + 6.0)
    assert (waits.verdict.kind, waits.verdict.ranks, waits.verdict.alert) == ("stall", (2,), "worker")
    waits.add(step(2, end + 6.1, 6.0))
    alive(waits, end + 8.0)
    assert waits.verdict.kind != "stall"


def test_in_a_mean_among_workers_a_stall_names_who_is_an_exchange_behind() -> None:
    waits = barrier([0.1, 0.1, 0.1])
    end = waits.now
    for rank in (0, 2):
        waits.add(step(rank, end + 0.1, 0.1))
    alive(waits, end + 9.0)
    assert (waits.verdict.kind, waits.verdict.ranks) == ("stall", (1,))


def test_a_lost_server_is_the_verdict_until_it_is_replaced_and_a_lost_worker_ends_its_own() -> None:
    waits = barrier([0.1, 0.1, 0.1, 0.4])
    waits.add(MemberChange(at=waits.now, party="server 0", event="lost"))
    assert (waits.verdict.kind, waits.verdict.alert) == ("lost", "server")
    waits.add(MemberChange(at=waits.now, party="server 0", event="replaced"))
    assert waits.verdict.ranks == (3,)
    waits.add(MemberChange(at=waits.now, party="worker 3", event="lost"))
    assert waits.verdict.ranks == ()


def test_workers_that_leave_as_the_run_ends_do_not_change_what_is_said_of_it() -> None:
    waits = barrier([0.1, 0.1, 0.1, 0.4])
    for rank in range(4):
        waits.add(MemberChange(at=waits.now + rank, party=f"worker {rank}", event="left", reason="epochs"))
    waits.add(Ended(at=waits.now, reason="epochs"))
    alive(waits, waits.now + 60.0)
    assert (waits.ended, waits.verdict.ranks) == ("epochs", (3,))
