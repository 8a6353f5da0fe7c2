"""Leases of data in virtual time: each sample of an epoch is in one update, whoever is lost, leaves or is restarted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import Data
from paceline.core.errors import ConfigError
from paceline.core.paramserver.gated_server import settles
from paceline.core.samples.sample_leases import APPLIED
from paceline.core.scheme import make, names
from paceline.core.trace import Leased
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import Summary
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated import simulated_run
from paceline.runtime.simulated.sample_leases import SimulatedSampleLeases
from paceline.runtime.simulated.setup import SimulationSetup
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim import Cluster
from paceline.sim.cluster.model import Fault, Hazards, uniform
from tests.runtime.simulated.virtual_runs import setting

SCHEMES = [name for name in names() if settles(make(name, {}), 2)]
WORKERS = 4
EPOCHS = 3
ON = {"workers": WORKERS, "servers": 2, "slowdown": [], "step_ms": 1000}
CRASH = Fault(kind="crash", at_s=7.3, workers=(1,))
ELASTIC = (
    Fault(kind="crash", at_s=4.3, for_s=9.0, workers=(1,)),
    Fault(kind="restart", at_s=6.4, workers=(0,)),
    Fault(kind="leave", at_s=9.1, workers=(2,)),
    Fault(kind="crash", at_s=16.6, for_s=0.5, workers=(3,)),  # back before its lease ends
    Fault(kind="restart", at_s=21.9, workers=(3,)),
)


def cluster(*faults: Fault) -> Cluster:
    return replace(uniform(WORKERS, 2, factors=(1.0, 1.3, 1.7, 0.6)), faults=faults, suspect_after_s=2.0)


def leased(
    scheme: str, *faults: Fault, timing_only: bool = True, partition: str = "queue", **more: Any
) -> SimulationSetup:
    more = {"on": ON, "data": {"partition": partition}, "stop": {"epochs": EPOCHS, "seconds": 3000}, **more}
    return setting(scheme, timing_only, cluster(*faults), **more)


class Totals(Counter[tuple[int, int]]):
    """How often each place of each epoch was applied, as the first server tells."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        settled = SimulatedSampleLeases.settled

        def hears(lending: SimulatedSampleLeases, rank: int, fate: str, data: Data) -> None:
            self.update((epoch, at) for epoch, a, b in data if fate == APPLIED for at in range(a, b))
            settled(lending, rank, fate, data)

        patch.setattr(SimulatedSampleLeases, "settled", hears)

    def check(self, summary: Summary, samples: int) -> None:
        assert summary.leased
        assert summary.reason == "epochs"
        assert summary.leased.epochs >= EPOCHS
        assert {self[epoch, at] for epoch in range(EPOCHS) for at in range(samples)} == {1}
        assert summary.leased.done == len(self) == self.total(), "nor is a later one applied twice"
        assert summary.leased.twice == 0


@pytest.mark.parametrize("faults", [(), ELASTIC], ids=["quiet", "churn"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_sample_of_an_epoch_is_in_one_update(
    scheme: str, faults: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = Totals(monkeypatch)
    virtual = VirtualRun(leased(scheme, *faults), Silent())
    totals.check(virtual.run(leave=False), len(virtual._splits.train))


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_what_a_killed_worker_had_is_done_by_others(scheme: str) -> None:
    quiet, lost = (VirtualRun(leased(scheme, *faults), Silent()).run(leave=False).leased for faults in ((), (CRASH,)))
    assert quiet
    assert lost
    assert quiet.returned == 0
    assert lost.returned > 0
    assert lost.epochs == quiet.epochs == EPOCHS


def test_what_a_restarted_worker_was_at_is_done_again() -> None:
    restart = Fault(kind="restart", at_s=7.3, workers=(1,))
    account = VirtualRun(leased("asp", restart), Silent()).run(leave=False).leased
    assert account
    assert (account.epochs, account.dropped, account.twice) == (EPOCHS, 32, 0)  # a mini-batch


@pytest.mark.parametrize("scheme", ["asp", "lbbsp"])
def test_timing_only_takes_as_long_as_training_does_and_does_the_same_samples(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for timing_only in (False, True):
        with monkeypatch.context() as patch:
            totals = Totals(patch)
            summary = VirtualRun(leased(scheme, *ELASTIC, timing_only=timing_only), Silent()).run(leave=False)
            found.append((summary.seconds, summary.samples, summary.leased, totals))
    assert found[0] == found[1]


def test_local_steps_are_settled_with_the_exchange_that_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = Totals(monkeypatch)
    more = {"asp": {"payload": "delta", "steps": 3, "factor": 4.0}}
    virtual = VirtualRun(leased("asp", *ELASTIC, timing_only=False, **more), Silent())
    totals.check(virtual.run(leave=False), len(virtual._splits.train))


def test_the_same_seed_leaves_the_same_bytes_however_often_it_was_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(name: str) -> list[bytes]:
        wanted = leased("ssp", *ELASTIC, timing_only=False, out=str(tmp_path / name))
        VirtualRun(wanted, Silent()).run()
        return [(tmp_path / name / f).read_bytes() for f in ("trace.jsonl", "summary.json", "model.safetensors")]

    first = left("a")
    monkeypatch.setattr(simulated_run, "SHOW_EVENTS", 1)
    monkeypatch.setattr(simulated_run, "SHOW_SECONDS", 0.0)
    assert first == left("b")
    accounts = [record for record in read_trace(tmp_path / "a" / "trace.jsonl") if isinstance(record, Leased)]
    assert [account.epochs for account in accounts][:EPOCHS] == list(range(1, EPOCHS + 1))


def test_leases_of_a_size_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = Totals(monkeypatch)
    virtual = VirtualRun(leased("bsp", *ELASTIC, partition="queue:50"), Silent())
    totals.check(virtual.run(leave=False), len(virtual._splits.train))


def test_where_messages_are_lost_they_are_refused() -> None:
    wanted = leased("asp")
    with pytest.raises(ConfigError, match=r"--partition queue: not where messages are lost; leave out the \[hazards\]"):
        replace(wanted, cluster=replace(wanted.cluster, hazards=Hazards(lost=0.1)))


def test_what_waits_for_its_round_counts_though_its_worker_is_gone() -> None:
    wanted = leased("bsp", Fault(kind="crash", at_s=1.4, workers=(1,)))  # which has pushed, and worker 2 has not
    wanted = replace(wanted, cluster=replace(wanted.cluster, suspect_after_s=0.02))
    account = VirtualRun(wanted, Silent()).run(leave=False).leased
    assert account
    assert (account.epochs, account.returned, account.twice) == (EPOCHS, 0, 0)
