"""The reducer: what it makes of records, and that what it says of a straggler is what the simulator says."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.trace import Applied, Ended, Gated, MemberChange, Record, Span
from paceline.observe.watch.page_data import PageQuery, picture
from paceline.observe.watch.state import PageState
from tests.held_objects import held
from tests.observe.watch.played import simulated

STEP_S = 0.02


BATCH = 32


def test_the_order_in_which_parties_were_heard_changes_nothing_but_who_is_last() -> None:
    spans: list[Record] = [
        Span(at=n * 0.1 + 0.1, rank=rank, activity="computing", seconds=0.1, steps=1, samples=4)
        for rank in range(3)
        for n in range(50)
    ]
    by_time, by_party = PageState(3), PageState(3)
    by_time.add_all(sorted(spans, key=lambda span: span.at))
    by_party.add_all(spans)
    for rank in range(3):
        assert [*by_time.strips.of(rank)] == [pytest.approx(sums, abs=1e-3) for sums in by_party.strips.of(rank)]
        assert by_time.workers[rank].step_s == by_party.workers[rank].step_s == pytest.approx(0.1)


def test_servers_count_what_they_applied_and_what_they_dropped() -> None:
    state = PageState(2)
    good = Applied(at=1.0, shard=0, ranks=(0, 1), version=1, staleness=3, weight=1.0, samples=8)
    state.add(good)
    state.add(Applied(at=2.0, shard=0, ranks=(1,), version=1, staleness=9, weight=0.0, samples=8))
    shard = state.shards[0]
    assert (shard.version, shard.updates, shard.contributions, shard.dropped) == (1, 1, 2, 1)
    assert state.lateness[1].largest == 9
    assert state.lateness[0].largest == 3


def test_who_has_left_holds_nobody_up() -> None:
    state = simulated("bsp", (1, 1, 1, 8))
    state.add(MemberChange(at=state.now, party="worker 3", event="lost", reason="silent for 5 s"))
    assert state.verdict.straggler is None
    assert state.events[-1].reason == "silent for 5 s"


def test_who_leaves_after_the_end_has_trained_to_the_end() -> None:
    state = simulated("bsp", (1, 1, 1, 8))
    seen = state.event_count
    state.add(Ended(at=state.now, reason="seconds"))
    for rank in range(4):
        state.add(MemberChange(at=state.now, party=f"worker {rank}", event="left", reason="seconds"))
    assert [worker.here for worker in state.workers] == [True] * 4
    assert state.event_count == seen


def test_who_has_come_back_is_there_again() -> None:
    state = simulated("bsp", (1, 1, 1, 8))
    for event in ("lost", "returned"):
        state.add(MemberChange(at=state.now, party="worker 3", event=event, reason="incarnation 2"))
    assert [worker.here for worker in state.workers] == [True] * 4
    named = state.verdict.straggler
    assert named is not None
    assert named.ranks == (3,)


def test_a_run_that_follows_another_in_the_same_trace_begins_anew() -> None:
    state = simulated("bsp", (1, 1))
    state.add(Ended(at=state.now, reason="steps"))
    assert state.ended == "steps"
    state.add(MemberChange(at=0.0, party="worker 0", event="joined", device="cuda:0", host="a"))
    assert (state.now, state.ended, state.samples) == (0.0, "", 0)
    assert (state.workers[0].device, state.workers[0].host) == ("cuda:0", "a")


def test_groups_are_who_meets_apart_from_others_and_none_where_all_meet_or_nobody_does() -> None:
    def groups(*updates: tuple[int, ...]) -> list[tuple[int, ...]]:
        state = PageState(4)
        state.add_all(
            Applied(at=n, shard=0, ranks=ranks, version=n, staleness=0, weight=1.0, samples=4)
            for n, ranks in enumerate(updates, 1)
        )
        return state.groups()

    assert groups((0, 1), (3, 2), (1, 0)) == [(0, 1), (2, 3)]
    assert groups((1,), (3, 0, 2)) == [(0, 2, 3), (1,)]
    assert groups((0, 1, 2, 3)) == groups((0,), (1,), (2,), (3,)) == groups((0, 1)) == []
    assert groups((0, 1), (2, 3), (1, 2)) == []  # in the midst of a change


def test_the_groups_of_gsp_are_seen_each_with_its_own_pace() -> None:
    state = simulated("gsp", (1, 1, 4, 4))
    assert state.groups() == [(0, 1), (2, 3)]
    fast, slow = picture(state, PageQuery())["groups"]
    assert fast["shares"][0] == pytest.approx(1.0, abs=0.1)
    assert len(fast["strip"]) == len(slow["strip"]) > 0
    assert fast["rate"] == pytest.approx(4 * slow["rate"], rel=0.1)
    assert slow["step_ms"] == pytest.approx(4 * fast["step_ms"], rel=0.1)


def test_what_the_page_holds_does_not_grow_with_the_run() -> None:
    state, sizes = PageState(4), []
    for number in range(20_001):
        at, rank = 0.01 * number, number % 4
        state.add(Span(at=at, rank=rank, activity="computing", seconds=0.01, steps=1, samples=8, exchanges=1))
        state.add(Applied(at=at, shard=0, ranks=(rank,), version=number, staleness=number % 5, weight=1.0, samples=8))
        state.add(Gated(at=at, shard=0, rank=rank, number=number, refused=True, reason="NaN"))
        if number in (2_000, 20_000):
            sizes.append(held(state))
    assert sizes[1] - sizes[0] < 2_000, f"{sizes}: nothing is kept for each record"
