"""Whole runs in which one worker has NaN in one step: every scheme of the catalogue goes on with all workers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.config import build
from paceline.core.scheme import make, names
from paceline.core.trace import OWN, Gated
from paceline.launch.local.train import Silent
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved
from tests.runtime.runs.changed_losses import LossOf, change_losses

BAD_STEP = 10
"""The step of worker 1 whose loss is NaN."""
MOMENTUM, ADAM = {"momentum": 0.9, "lr": 0.05}, {"name": "adam", "lr": 0.003}
MUON = {"name": "muon", "lr": 0.02}


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[float]]:
    """The losses of each worker, by rank."""
    found: dict[int, list[float]] = defaultdict(list)

    def changed(rank: int, loss_of: LossOf) -> LossOf:
        factor = math.nan if (rank, len(found[rank])) == (1, BAD_STEP - 1) else 1.0

        def loss(*batch: Tensor) -> Tensor:
            value = loss_of(*batch) * factor
            found[rank].append(float(value.detach()))
            return value

        return loss

    change_losses(monkeypatch, changed)
    return found


def assert_that_it_costs_a_round_at_most(losses: dict[int, list[float]], steps_max: int) -> None:
    bad = {rank: sum(not math.isfinite(loss) for loss in of) for rank, of in losses.items()}
    assert 1 <= bad.pop(1) <= steps_max
    assert not any(bad.values())
    assert all(map(math.isfinite, losses[1][-5:]))


def cases() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Every scheme as it is by default, on servers and without, and what workers remember of their optimizers."""
    for name in names():
        own = make(name, {})
        if own.server(2) is not None or own.uses_mean(2):
            yield name, 2, {}
        if own.uses_mean(0) or (own.needs_peers and not own.composite):
            yield name, 0, {}
    for name in ("easgd", "eamsgd"):
        yield name, 0, {"synchronous": True}
        yield name, 2, {"memory": "reset"}
    for name, payload in (("bsp", "delta"), ("partial", "delta"), ("partial", "weights")):
        yield name, 2, {"payload": payload, "steps": 4}
    for name in ("localsgd", "diloco", "eamsgd"):
        yield name, 0, {"memory": "average"} | ({"synchronous": True} if name == "eamsgd" else {})
    yield "bsp", 0, {"payload": "delta", "steps": 4}
    yield "tiers", 2, {"inner": "bsp(payload=delta, steps=4)"}


@pytest.mark.parametrize(("scheme", "servers", "parameters"), list(cases()))
@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM], ids=["momentum", "adam"])
def test_in_virtual_time_no_worker_is_spoilt(
    losses: dict[int, list[float]], scheme: str, servers: int, parameters: dict[str, Any], optimizer: dict[str, Any]
) -> None:
    if scheme == "muloco":
        optimizer = MUON
    elif scheme == "eamsgd" and optimizer is MOMENTUM:
        optimizer = {"lr": 0.05}
    config = build(
        {
            "run": {"scheme": scheme},
            "cluster": {"workers": 4, "step_ms": 10, "servers": servers, "slowdown": (1.0, 1.5, 2.0, 4.0)},
            "optimizer": optimizer,
            "model": {"width": 0.25},
            "stop": {"epochs": 6},
            scheme: parameters,
        }
    )
    cluster = cluster_of(config, NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0), lambda: 0.0)
    run = VirtualRun(SimulationSetup(config=config, cluster=cluster), Silent())
    summary = run.run(leave=False)
    assert summary.faults == ()
    assert summary.workers[1].refused <= 4, "a mean of the optimizer's state is one contribution more"
    assert_that_it_costs_a_round_at_most(losses, 60 if scheme == "muloco" else 40)
    for steps in run._training._steps if run._training else ():
        memory = steps.memory()
        assert memory is None or math.isfinite(memory.norm()), "what an optimizer remembers is finite"


@pytest.mark.parametrize(
    ("scheme", "servers", "sections"),
    [
        ("bsp", 0, {}),
        ("bsp", 0, {"compression": {"up": "bf16", "exact_below": 0}}),
        ("bsp", 0, {"compression": {"up": "topk(ratio=0.2)", "exact_below": 0}}),
        ("localsgd", 0, {"compression": {"up": "powersgd(rank=2)"}}),
        ("bsp", 0, {"cluster": {"allreduce": "ring"}}),
        ("easgd", 1, {}),
        ("adpsgd", 0, {}),
        ("prague", 0, {}),
    ],
)
def test_in_a_live_run_too(
    losses: dict[int, list[float]], threads: Runner, out: Path, scheme: str, servers: int, sections: dict[str, Any]
) -> None:
    optimizer = {"momentum": 0.9, "lr": 0.02}
    config = config_for(out, steps=60, scheme=scheme, workers=3, servers=servers, optimizer=optimizer, **sections)
    summary = threads(config)
    assert summary.faults == ()
    assert [w.steps for w in summary.workers] == [60, 60, 60]
    assert_that_it_costs_a_round_at_most(losses, 10)
    assert all(torch.isfinite(v).all() for v in saved(config).values())
    if servers == 0:
        found = [r for r in read_trace(out / "trace.jsonl") if isinstance(r, Gated)]
        assert {(r.shard, r.rank, r.refused) for r in found} == {(OWN, 1, True)}
        assert [w.refused for w in summary.workers] == [0, len(found), 0]
