"""The reducer: what it makes of records, and that what it says of a straggler is what the simulator says."""

from __future__ import annotations

import random

import pytest

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.scheme import make
from paceline.core.trace import Applied, Decided, Ended, MemberChange, Record, Span
from paceline.core.vector import Ghost
from paceline.observe.watch.page_data import PageQuery, picture
from paceline.observe.watch.state import PageState
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Fault, Host

STEP_S = 0.02
BATCH = 32


def simulated(scheme: str, factors: tuple[float, ...], *, seconds: float = 8.0, jitter: float = 0.0) -> PageState:
    hosts = [Host(name=f"h{n}", devices=(Device(factor=f, jitter=jitter),)) for n, f in enumerate(factors)]
    return played(scheme, Cluster(hosts=(*hosts, Host(name="s", servers=1)), step_s=STEP_S), seconds)


def played(scheme: str, cluster: Cluster, seconds: float) -> PageState:
    state = PageState(cluster.workers)
    work = LocalSteps(lambda rank, rng: cluster.step_s, samples=lambda rank: BATCH)
    Simulation(make(scheme, {}), Ghost(10_000), work, cluster=cluster, trace=state.add, watched=False).run(
        until=seconds
    )
    return state


def throughput(state: PageState) -> float:
    return state.samples / state.now


@pytest.mark.parametrize(("slowed", "jitter"), [(4.0, 0.0), (2.0, 0.0), (8.0, 0.1), (4.0, 0.1)])
def test_the_stated_cost_of_a_straggler_under_bsp_is_what_the_simulator_finds_without_it(
    slowed: float, jitter: float
) -> None:
    with_it = simulated("bsp", (1, 1, 1, slowed), jitter=jitter)
    without = simulated("bsp", (1, 1, 1), jitter=jitter)
    named = with_it.straggler()
    assert named is not None
    assert named.ranks == (3,)
    assert named.cost == pytest.approx(throughput(without) - throughput(with_it), rel=0.2)


@pytest.mark.parametrize("scheme", ["ssp", "localsgd"])
def test_it_is_also_where_workers_wait_at_a_bound_or_for_a_mean(scheme: str) -> None:
    with_it, without = simulated(scheme, (1, 1, 1, 4)), simulated(scheme, (1, 1, 1))
    named = with_it.straggler()
    assert named is not None
    assert named.ranks == (3,)
    assert named.cost == pytest.approx(throughput(without) - throughput(with_it), rel=0.2)


@pytest.mark.parametrize("scheme", ["asp", "esync"])
def test_nobody_is_named_where_nobody_waits_for_the_slow(scheme: str) -> None:
    assert simulated(scheme, (1, 1, 1, 4)).straggler() is None


def test_nobody_is_named_among_equals() -> None:
    assert simulated("bsp", (1, 1, 1, 1), jitter=0.05).straggler() is None


def test_two_that_are_equally_slow_are_named_together() -> None:
    named = simulated("bsp", (1, 6, 1, 6)).straggler()
    assert named is not None
    assert set(named.ranks) == {1, 3}


def test_a_member_of_another_group_is_not_blamed() -> None:
    state = PageState(workers=4)
    for n in range(100):
        for rank, own, waited in ((0, 0.1, 0.0), (1, 0.1, 0.0), (2, 0.1, 0.7), (3, 0.8, 0.0)):
            at = (n + 1) * (own + waited)
            state.add(Span(at=at - waited, rank=rank, activity="computing", seconds=own, steps=1, samples=8))
            if waited:
                state.add(Decided(at=at, party="server 0", rank=rank, verdict="wait", reason="", whom=(3,)))
                state.add(Span(at=at, rank=rank, activity="waiting", seconds=waited))
    named = state.straggler()
    assert named is not None
    assert named.ranks == (3,)
    assert named.without == pytest.approx(3 * 8 / 0.1, rel=0.02)


def test_a_host_that_becomes_slow_is_named_within_ten_seconds() -> None:
    slow = Fault(kind="slow-disk", at_s=20.0, for_s=100.0, extra_s=3 * STEP_S, hosts=("h2",))
    hosts = [Host(name=f"h{n}", devices=(Device(jitter=0.05),)) for n in range(4)]
    cluster = Cluster(hosts=(*hosts, Host(name="s", servers=1)), step_s=STEP_S, faults=(slow,))
    assert played("bsp", cluster, 20.0).straggler() is None
    named = played("bsp", cluster, 30.0).straggler()
    assert named is not None
    assert named.ranks == (2,)


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


def test_strips_keep_every_second_while_they_may_and_the_latest_afterwards() -> None:
    rng = random.Random(3)
    state, at = PageState(1), 0.0
    for _ in range(3000):
        seconds = rng.uniform(0.01, 0.09)
        at += seconds
        state.add(Span(at=at, rank=0, activity="computing", seconds=seconds, steps=1, samples=2))
        bins = [sum(sums) for sums in state.strips.of(0)]
        since = state.strips.first * state.strips.width_s
        assert sum(bins) == pytest.approx(at - since, abs=0.01)
    assert at > 120
    assert len(bins) * state.strips.width_s >= 120
    assert sum(sum(sums) for sums in state.rates.of(0)) == pytest.approx(6000)


def test_local_steps_between_exchanges_are_counted() -> None:
    state = simulated("localsgd", (1, 1))
    assert state.workers[0].steps_a_round == pytest.approx(make("localsgd", {}).tau, rel=0.2)
    assert simulated("bsp", (1, 1)).workers[0].steps_a_round == pytest.approx(1.0)


def test_the_trace_names_whom_a_worker_waits_for() -> None:
    for scheme in ("bsp", "ssp"):
        wait = simulated(scheme, (1, 1, 1, 4)).wait(2)
        assert wait is not None
        assert wait.whom == (3,)


def test_a_wait_that_is_heard_of_before_the_step_it_follows_goes_on_until_the_next_step() -> None:
    state = PageState(2)
    state.add(Decided(at=0.101, party="server 0", rank=0, verdict="wait", reason="waits for worker 1", whom=(1,)))
    state.add(Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=4))
    assert state.standing(0) == "waiting"
    state.add(Span(at=0.6, rank=0, activity="computing", seconds=0.1, steps=1, samples=4))
    assert state.wait(0) is None


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
    assert state.straggler() is None
    assert state.events[-1].reason == "silent for 5 s"


def test_who_has_come_back_is_there_again() -> None:
    state = simulated("bsp", (1, 1, 1, 8))
    for event in ("lost", "returned"):
        state.add(MemberChange(at=state.now, party="worker 3", event=event, reason="incarnation 2"))
    assert [worker.here for worker in state.workers] == [True] * 4
    named = state.straggler()
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
