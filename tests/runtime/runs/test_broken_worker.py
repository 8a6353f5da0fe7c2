"""Whole runs without servers in which a worker's results are bad from some step on: it is expelled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.config import build
from paceline.core.trace import OWN, Gated, MemberChange
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import Summary
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import RunBroken, VirtualRun
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved
from tests.runtime.runs.changed_losses import LossOf, change_losses

Break = Callable[[int, int], bool]
"""Says of a rank and the number of its mini-batch, from 1, whether its loss is NaN."""
WHY = "bad numbers: all of its last 10 contributions were refused"
GOSSIP = ["adpsgd", "gosgd", "noloco", "prague", "sgp"]


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Break], None]:
    """Makes losses NaN."""
    steps, is_bad = Counter[int](), list[Break]()

    def changed(rank: int, loss_of: LossOf) -> LossOf:
        steps[rank] += 1
        factor = math.nan if is_bad[0](rank, steps[rank]) else 1.0
        return lambda *batch: loss_of(*batch) * factor

    change_losses(monkeypatch, changed)
    return is_bad.append


def simulated(scheme: str, **sections: Any) -> Summary:
    config = build(
        {
            "run": {"scheme": scheme},
            "cluster": {"workers": 4, "step_ms": 10, "servers": 0, "slowdown": (1.0, 1.5, 2.0, 4.0)},
            "optimizer": {"momentum": 0.9, "lr": 0.05},
            "model": {"width": 0.25},
            "stop": {"epochs": 12},
            **({"noloco": {"h": 2}} if scheme == "noloco" else {}),
            **sections,
        }
    )
    cluster = cluster_of(config, NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0), lambda: 0.0)
    run = VirtualRun(SimulationSetup(config=config, cluster=cluster), Silent())
    summary = run.run(leave=False)
    assert torch.isfinite(run.simulation.model().value()).all()
    return summary


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("scheme", [*GOSSIP, "bsp", "esync", "localsgd"])
def test_in_virtual_time_it_is_expelled_and_the_others_go_on(
    breaks: Callable[[Break], None], scheme: str, rank: int
) -> None:
    breaks(lambda who, step: who == rank and step >= 20)
    summary = simulated(scheme)
    (change,) = summary.faults
    assert (change.party, change.event) == (f"worker {rank}", "expelled")
    assert change.reason == f"{WHY}; it trains no more; 3 of 4 continue"
    refused = [worker.refused for worker in summary.workers]
    assert 10 <= refused.pop(rank) <= 60, "a fast one has some more until the slow ones have made two steps"
    assert refused == [0, 0, 0]
    assert summary.reason == "epochs"


@pytest.mark.parametrize("scheme", [*GOSSIP, "bsp"])
def test_three_bad_steps_cost_three_contributions(breaks: Callable[[Break], None], scheme: str) -> None:
    breaks(lambda who, step: who == 1 and 20 <= step < 23)
    summary = simulated(scheme)
    assert summary.faults == ()
    assert [worker.refused for worker in summary.workers] == [0, 2 if scheme == "noloco" else 3, 0, 0]


@pytest.mark.parametrize("scheme", GOSSIP)
def test_if_all_are_bad_the_model_has_diverged(breaks: Callable[[Break], None], scheme: str) -> None:
    breaks(lambda who, step: step >= 20)
    with pytest.raises(RunBroken, match=rf"^{scheme}: the model has diverged: the last \d+ results, of every worker"):
        simulated(scheme)


@pytest.mark.parametrize("sections", [{"gate": {"strikes": 0}}, {"gate": {"mode": "off"}}])
def test_nobody_is_expelled_from_gossip_without_strikes(
    breaks: Callable[[Break], None], sections: dict[str, Any]
) -> None:
    breaks(lambda who, step: who == 1 and step >= 20)
    summary = simulated("gosgd", **sections)
    assert summary.faults == ()
    assert summary.workers[1].refused > 60


@pytest.mark.parametrize(
    ("scheme", "rank", "sections"),
    [
        ("bsp", 0, {}),
        ("localsgd", 1, {"compression": {"up": "powersgd(rank=2)"}, "localsgd": {"tau": 2}}),
        ("gosgd", 0, {"cluster": {"min_workers": 2}}),
        ("prague", 1, {}),
    ],
)
def test_a_live_one_is_expelled_too(
    breaks: Callable[[Break], None],
    threads: Runner,
    tmp_path: Path,
    scheme: str,
    rank: int,
    sections: dict[str, Any],
) -> None:
    breaks(lambda who, step: who == rank and step >= 10)
    cluster = {"step_ms": 5, **sections.pop("cluster", {})}
    config = config_for(tmp_path, steps=200, scheme=scheme, workers=3, servers=0, cluster=cluster, **sections)
    summary = threads(config)
    (change,) = summary.faults
    assert (change.party, change.event) == (f"worker {rank}", "expelled")
    assert change.reason == f"{WHY}; it trains no more; 2 of 3 continue"
    records = list(read_trace(tmp_path / "trace.jsonl"))
    found = [r for r in records if isinstance(r, Gated)]
    assert {(r.shard, r.rank, r.refused) for r in found} == {(OWN, rank, True)}
    assert summary.workers[rank].refused == len(found) >= 10
    assert [r.event for r in records if isinstance(r, MemberChange) and r.party == change.party] == [
        "joined",
        "expelled",
    ]
    assert [w.steps for w in summary.workers if w.rank != rank] == [200, 200]
    assert all(torch.isfinite(v).all() for v in saved(config).values())


def test_a_live_run_of_gossip_in_which_all_are_bad_ends_with_one_line(
    breaks: Callable[[Break], None], threads: Runner, tmp_path: Path
) -> None:
    breaks(lambda who, step: step >= 10)
    with pytest.raises(RunFailed, match=r"^the model has diverged: the last \d+ results, of every worker, had NaN"):
        threads(config_for(tmp_path, steps=500, scheme="gosgd", workers=3, servers=0))
