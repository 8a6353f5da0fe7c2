"""Schedules of the learning rate follow one clock, the samples of all workers (`worker/loop/sample_counts.py`)."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from paceline.engine.optim.optimizers import LocalOptimizer
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.conftest import Runner
from tests.runtime.one_process import assert_same, config_for, resumed, saved
from tests.runtime.runs.test_remembering import differing, in_one

SAMPLES = 1437
COSINE: dict[str, Any] = {"schedule": {"name": "cosine"}, "optimizer": {"lr": 0.1, "momentum": 0.9}}
EVERY_FEW: dict[str, Any] = {"schedule": {"name": "step", "every": 0.2, "factor": 0.7}}

LOCK_STEP: dict[str, dict[str, Any]] = {
    "bsp, 1 server": {"scheme": "bsp"},
    "bsp, 3 servers": {"scheme": "bsp", "servers": 3},
    "bsp, no server": {"scheme": "bsp", "servers": 0},
    "bsp of deltas": {"scheme": "bsp", "bsp": {"payload": "delta", "steps": 5}, "servers": 3},
    "localsgd, 1 server": {"scheme": "localsgd", "localsgd": {"tau": 5}},
    "localsgd, 3 servers": {"scheme": "localsgd", "localsgd": {"tau": 5}, "servers": 3},
    "localsgd, no server": {"scheme": "localsgd", "localsgd": {"tau": 5}, "servers": 0},
    "postlocal": {"scheme": "postlocal", "postlocal": {"tau": 5, "switch": "5 steps"}},
    "slowmo": {"scheme": "slowmo", "slowmo": {"tau": 5}, "servers": 3},
    "diloco": {"scheme": "diloco", "diloco": {"h": 5}, "servers": 0},
    "diloco in fragments": {"scheme": "diloco", "diloco": {"h": 10, "fragments": 2}},
    "easgd, synchronous": {"scheme": "easgd", "easgd": {"tau": 5, "synchronous": True}, "servers": 0},
    "easgd, synchronous, 3 servers": {"scheme": "easgd", "easgd": {"tau": 5, "synchronous": True}, "servers": 3},
    "eamsgd, synchronous": {"scheme": "eamsgd", "eamsgd": {"tau": 5, "synchronous": True}, "servers": 0},
    "sgp": {"scheme": "sgp", "servers": 0},
}


def carried(row: str) -> dict[str, Any]:
    """Who carries means: by default it is whoever is measured to be faster, and sums have other bits then."""
    return {"allreduce": "servers" if LOCK_STEP[row].get("servers", 1) else "ring"}


@pytest.mark.parametrize("row", LOCK_STEP)
def test_in_lock_step_the_same_seed_gives_the_same_bits_whatever_is_slow(threads: Runner, out: Path, row: str) -> None:
    """The second run has other speeds, so that reports of progress come at other moments."""
    how, carrier = {**EVERY_FEW, **LOCK_STEP[row]}, carried(row)
    first = config_for(out / "a", steps=20, cluster=carrier, **how)
    second = config_for(out / "b", steps=20, cluster={"slowdown": [3, 1], "step_ms": 10.0, **carrier}, **how)
    threads(first)
    threads(second)
    assert_same(saved(second), saved(first))


@pytest.mark.parametrize("row", [row for row in LOCK_STEP if row != "sgp"])
def test_in_lock_step_a_run_that_goes_on_is_the_run_in_one_go(threads: Runner, out: Path, row: str) -> None:
    how = {**EVERY_FEW, "optimizer": {"lr": 0.05, "momentum": 0.9}, "cluster": carried(row), **LOCK_STEP[row]}
    if row.startswith("eamsgd"):
        how["optimizer"] = {"lr": 0.05}
    threads(resumed(out, 15, **how))
    again = resumed(out, 30, "auto", **how)
    summary = threads(again)
    assert [worker.steps for worker in summary.workers] == [30, 30]
    assert differing(saved(again), in_one(threads, out, how)) == []


class Rates:
    """The last learning rate of each optimizer that makes local steps, by the samples it takes all to have trained."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last: dict[int, int] = {}
        self._lock = threading.Lock()
        step = LocalOptimizer.step

        def noted(optimizer: LocalOptimizer, samples_seen: int) -> None:
            with self._lock:
                self.last[id(optimizer)] = samples_seen
                self.optimizers = [*getattr(self, "optimizers", []), optimizer]  # so that no id is another's later
            step(optimizer, samples_seen)

        monkeypatch.setattr(LocalOptimizer, "step", noted)


def cosine(samples: int, total: int) -> float:
    return 0.1 * (1 + math.cos(math.pi * min(1.0, samples / total))) / 2


LOCAL = ["localsgd", "postlocal", "slowmo", "diloco"]


@pytest.mark.parametrize("scheme", [*LOCAL, "esync", "easgd"])
def test_live_a_cosine_ends_at_nothing_for_every_worker(
    threads: Runner, out: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Within one exchange of all workers, though one is four times slower and nobody reports in so short a run."""
    rates, workers, steps = Rates(monkeypatch), 3, {"diloco": 20, "slowmo": 12, "easgd": 10}.get(scheme, 8)
    how = {"cluster": {"slowdown": [1, 4, 1], "step_ms": 5.0}, "stop": {"epochs": 4.0}, **COSINE}
    summary = threads(config_for(out, steps=0, scheme=scheme, workers=workers, **how))
    assert summary.samples >= 4 * SAMPLES
    assert len(rates.last) == workers
    exchange = steps * 32 * (6 if scheme == "easgd" else workers)  # others go on meanwhile, until it is their end
    last = sorted(rates.last.values())
    # Under easgd nobody waits: what others train while the system does not let a worker run has no bound.
    for samples in last[-1:] if scheme == "easgd" else last:
        assert samples > 4 * SAMPLES - exchange


@pytest.mark.parametrize("scheme", [*LOCAL, "esync", "easgd", "asyncdiloco"])
def test_in_virtual_time_a_cosine_ends_at_nothing_for_every_worker(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    rates, steps = Rates(monkeypatch), {"diloco": 20, "asyncdiloco": 20, "slowmo": 12, "easgd": 10}.get(scheme, 8)
    how = {"stop": {"epochs": 8.0}, "evaluation": {"every": 60.0}, "cluster": {"step_ms": 10.0}, **COSINE}
    config = config_for(Path(), steps=0, scheme=scheme, workers=3, **how)
    cluster = cluster_of(config, NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0), lambda: 0.0)
    VirtualRun(SimulationSetup(config=config, cluster=cluster, timing_only=False), Silent()).run(leave=False)
    assert len(rates.last) == 3
    for samples in rates.last.values():
        assert samples > 8 * SAMPLES - 3 * steps * 32
        assert cosine(samples, 8 * SAMPLES) < 0.008
