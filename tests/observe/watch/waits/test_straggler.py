"""Who is named as the straggler, and what it costs."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.trace import Decided, Span
from paceline.observe.watch.state import PageState
from paceline.sim.cluster.model import Cluster, Device, Fault, Host
from tests.observe.watch.played import played, simulated

STEP_S = 0.02


BATCH = 32


def throughput(state: PageState) -> float:
    return state.samples / state.now


@pytest.mark.parametrize(("slowed", "jitter"), [(4.0, 0.0), (2.0, 0.0), (8.0, 0.1), (4.0, 0.1)])
def test_the_stated_cost_of_a_straggler_under_bsp_is_what_the_simulator_finds_without_it(
    slowed: float, jitter: float
) -> None:
    with_it = simulated("bsp", (1, 1, 1, slowed), jitter=jitter)
    without = simulated("bsp", (1, 1, 1), jitter=jitter)
    named = with_it.verdict.straggler
    assert named is not None
    assert named.ranks == (3,)
    assert named.cost == pytest.approx(throughput(without) - throughput(with_it), rel=0.2)


@pytest.mark.parametrize("scheme", ["ssp", "localsgd"])
def test_it_is_also_where_workers_wait_at_a_bound_or_for_a_mean(scheme: str) -> None:
    with_it, without = simulated(scheme, (1, 1, 1, 4)), simulated(scheme, (1, 1, 1))
    named = with_it.verdict.straggler
    assert named is not None
    assert named.ranks == (3,)
    assert named.cost == pytest.approx(throughput(without) - throughput(with_it), rel=0.2)


@pytest.mark.parametrize("scheme", ["asp", "esync"])
def test_nobody_is_named_where_nobody_waits_for_the_slow(scheme: str) -> None:
    assert simulated(scheme, (1, 1, 1, 4)).verdict.straggler is None


def test_nobody_is_named_among_equals() -> None:
    assert simulated("bsp", (1, 1, 1, 1), jitter=0.05).verdict.straggler is None


def test_two_that_are_equally_slow_are_named_together() -> None:
    named = simulated("bsp", (1, 6, 1, 6)).verdict.straggler
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
    named = state.verdict.straggler
    assert named is not None
    assert named.ranks == (3,)
    assert named.without == pytest.approx(3 * 8 / 0.1, rel=0.02)


def test_a_host_that_becomes_slow_is_named_within_ten_seconds() -> None:
    slow = Fault(kind="slow-disk", at_s=20.0, for_s=100.0, extra_s=3 * STEP_S, hosts=("h2",))
    hosts = [Host(name=f"h{n}", devices=(Device(jitter=0.05),)) for n in range(4)]
    cluster = Cluster(hosts=(*hosts, Host(name="s", servers=1)), step_s=STEP_S, faults=(slow,))
    assert played("bsp", cluster, 20.0).verdict.straggler is None
    named = played("bsp", cluster, 30.0).verdict.straggler
    assert named is not None
    assert named.ranks == (2,)
