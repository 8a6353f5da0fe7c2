"""Workers that crash, leave, join and come back."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.coordination.lifecycle import StopRule
from paceline.core.trace import MemberChange, Record, Span
from paceline.sim import Cluster
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.cluster.model import Device, Fault, Hazards, Host
from tests.sim.faults.faulty import news, simulate, with_fault


def test_a_crash_is_noticed_when_the_lease_ends_and_stalls_a_barrier_until_then() -> None:
    records: list[Record] = []
    sim = with_fault(scheme="bsp", kind="crash", at_s=20.5, workers=(1,), more={"trace": records.append})
    assert sim.steps[1] == 20
    assert news(records) == [("lost", "worker 1")]
    assert records[[type(r) for r in records].index(MemberChange)].at == pytest.approx(30.5)
    waited = [r.seconds for r in records if isinstance(r, Span) and r.activity == "waiting" and r.rank == 0]
    assert max(waited) == pytest.approx(9.5, abs=0.01)
    assert sim.steps[0] == pytest.approx(90, abs=1)


def test_a_crashed_worker_that_is_back_before_its_lease_ends_is_a_newcomer() -> None:
    records: list[Record] = []
    sim = with_fault(kind="crash", at_s=20.5, for_s=4.0, workers=(1,), more={"trace": records.append})
    assert news(records) == [("lost", "worker 1"), ("returned", "worker 1")]
    assert sim.steps == [100, 20 + 75, 100]


def test_a_restart_costs_the_step_under_way() -> None:
    assert with_fault(kind="restart", at_s=20.5, workers=(1,)).steps == [100, 99, 100]


def test_leaves_and_joins_come_when_the_file_says() -> None:
    late = Host(name="late", devices=(Device(),), joins_at_s=40.0)
    early = Host(name="early", devices=(Device(),), leaves_at_s=30.5)
    cluster = Cluster(hosts=(late, early, Host(name="rest", devices=(Device(),), servers=1)))
    assert simulate(cluster, "asp").steps == [60, 31, 100]
    for meeting in (cluster, cluster.without_servers()):
        assert simulate(meeting, "bsp").steps == pytest.approx([60, 31, 100], abs=1)


@pytest.mark.parametrize("scheme", ["bsp", "esync", "tiers"])
def test_a_newcomer_that_hangs_before_its_first_step_is_lost_and_the_others_go_on(scheme: str) -> None:
    """Its process is heard, and everybody waits for it. Worker 1 is back at 20 s, and hangs then."""
    records: list[Record] = []
    hosts = (*(Host(name=f"w{rank}", devices=(Device(),)) for rank in range(3)), Host(name="server", servers=1))
    away = Fault(kind="crash", at_s=10.0, for_s=10.0, hosts=("w1",))
    cluster = Cluster(hosts=hosts, faults=(away,), hazards=Hazards(), suspect_after_s=3.0)
    wish = StopWish(StopRule(seconds=400.0), hangs=((1, 20.0 + 1e-6),), stuck_s=40.0)
    sim = simulate(cluster, scheme, 250.0, seed=1, trace=records.append, wish=wish)
    assert news(records) == [("lost", "worker 1"), ("returned", "worker 1")] * 2
    hung = next(r for r in records if isinstance(r, MemberChange) and "did not begin to train" in r.reason)
    assert (
        hung.reason
        == "joined, and did not begin to train within 120 s; its log shows where it is stuck; 2 of 3 continue"
    )
    assert hung.at == pytest.approx(20.0 + 120.0, abs=1.0)
    assert all(steps > 60 for steps in sim.steps), "they go on, and so does its next incarnation"
