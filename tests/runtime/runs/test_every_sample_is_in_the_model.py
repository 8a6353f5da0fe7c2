"""However a run ends, the final model holds every sample that was trained, under every scheme.

The model of `benchmarks/laws.py` has a row for each sample, so it says itself which samples it holds.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import laws
from paceline.core.errors import ConfigError
from paceline.core.scheme import make, names
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.runtime.worker.pace import Pace
from paceline.sim.cluster.model import Fault, NetworkSpec
from tests.runtime.own_loops import run_loops

UNEVEN = (3, 21, 9)
"""Steps of each worker's loop, before it ends by itself."""
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("diloco", {"h": 8, "fragments": 4}),
    ("diloco", {"h": 8, "delay": 2}),
    ("diloco", {"h": 8, "fragments": 2, "delay": 1}),
    ("diloco", {"h": 8, "eager": True}),
    ("diloco", {"h": 8, "fragments": 2, "eager": True}),
    ("esync", {"delayed_ack": False}),
    ("eamsgd", {"synchronous": True}),
    ("bsp", {"payload": "delta", "steps": 4}),
    ("asp", {"steps": 4}),
    ("decoupled", {"quorum": 0}),
    ("tiers", {"inner": "localsgd(tau=4)"}),
    ("tiers", {"inner": "esync"}),
    ("tiers", {"inner": "bsp", "outer": "asp"}),
    ("halos", {"h": 3, "k": 2}),
]


@pytest.mark.parametrize("ending", ["epochs", "samples", "steps"])
@pytest.mark.parametrize("way", ["train", "simulate"])
@pytest.mark.parametrize("scheme", names())
def test_a_run_by_a_rule(scheme: str, way: str, ending: str, tmp_path: Path) -> None:
    counted = laws.WAYS[way](scheme, ending, 3, 1, tmp_path / "run")
    assert counted > 0
    assert laws.marked(laws.load_file(tmp_path / "run" / "model.safetensors")) == counted - laws.dropped(
        tmp_path / "run"
    )


@pytest.mark.parametrize("scheme", names())
def test_a_simulated_run_by_seconds(scheme: str, tmp_path: Path) -> None:
    counted = laws.by_simulate(scheme, "seconds", 3, 1, tmp_path / "run")
    assert counted > 0
    assert laws.marked(laws.load_file(tmp_path / "run" / "model.safetensors")) == counted - laws.dropped(
        tmp_path / "run"
    )


def in_loops(scheme: str, parameters: dict[str, Any], ending: str, servers: int, out: Path) -> None:
    trained, lock = set[int](), threading.Lock()
    data = laws.numbered()[0]

    def loop(pace: Pace, model: nn.Module) -> None:
        for n, (x, y) in enumerate(pace.batches(data, laws.BATCH), 1):
            nn.functional.cross_entropy(model(x), y).backward()
            before = pace._worker.counts.samples
            pace.step()
            if pace._worker.counts.samples > before:
                with lock:
                    trained.update(x.long().flatten().tolist())
            if ending == "stop" and pace.rank == 0 and n == 7:
                pace.stop()
            if ending == "break" and n == UNEVEN[pace.rank]:
                break

    summary, models = run_loops(
        out,
        scheme,
        loop,
        servers=servers,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        make_model=laws.Marks,
        **parameters,
    )
    assert summary.samples == len(trained) > 0
    weights = {name: table.detach() for name, table in models[0].named_parameters()}
    assert laws.marked(weights) == len(trained) - laws.dropped(out)


@pytest.mark.parametrize("ending", ["break", "stop"])
@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("scheme", names())
def test_loops_of_ones_own(scheme: str, servers: int, ending: str, tmp_path: Path) -> None:
    parameters = laws.parameters(scheme).get(scheme, {})
    try:
        make(scheme, parameters).check(3, servers)
    except ConfigError:
        pytest.skip(f"{scheme} needs servers")
    in_loops(scheme, parameters, ending, servers, tmp_path / "run")


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [
        *((scheme, {"tau": 4}) for scheme in ("localsgd", "postlocal", "slowmo")),
        *((scheme, {"h": 4}) for scheme in ("diloco", "muloco", "sparseloco")),
        ("diloco", {"h": 8, "fragments": 2}),
        ("diloco", {"h": 8, "fragments": 2, "eager": True}),
    ],
)
def test_what_a_worker_trains_that_joins_within_a_round(
    scheme: str, parameters: dict[str, Any], tmp_path: Path
) -> None:
    """Worker 1 crashes and is back 33 ms later, at moments all over a round of 40 to 52 ms."""
    for n in range(14):
        out = tmp_path / f"run-{n}"
        sections = {"cluster": {"slowdown": [1.0, 1.0, 1.3], "step_ms": 10.0}, scheme: parameters}
        config = laws.config_of(scheme, "none", 3, 1, out, **sections)
        crash = Fault(kind="crash", at_s=0.1 + 0.0037 * n, for_s=0.033, workers=(1,))
        cluster = cluster_of(config, NetworkSpec(latency_s=1e-3), lambda: 0.01)
        cluster = replace(cluster, faults=(crash,), suspect_after_s=0.01)
        summary = VirtualRun(SimulationSetup(config=config, cluster=cluster), Silent()).run()
        held = laws.marked(laws.load_file(out / "model.safetensors"))
        assert summary.samples == held + laws.dropped(out), f"crash at {crash.at_s:.4f} s"


@pytest.mark.parametrize("ending", ["break", "stop"])
@pytest.mark.parametrize(("scheme", "parameters"), VARIANTS)
def test_so_it_is_in_their_variants(scheme: str, parameters: dict[str, Any], ending: str, tmp_path: Path) -> None:
    in_loops(scheme, parameters, ending, 1, tmp_path / "run")
