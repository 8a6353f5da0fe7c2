"""Models that become NaN: no scheme saves one over a good one, and the run says what happened."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paceline
from paceline.checkpoint.folder_store import FolderStore
from paceline.config import Config
from paceline.core.errors import Diverged
from paceline.engine.model.mixed_precision import Precision
from paceline.launch.local.train import Silent
from paceline.runtime.evaluator.evaluator import Evaluator
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import RunBroken, VirtualRun
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved

OFF = {"gate": {"mode": "off"}}
WITHOUT_A_GATE = [
    *((scheme, {"servers": 0, **OFF}) for scheme in ("bsp", "localsgd")),
    *((scheme, OFF) for scheme in ("asp", "easgd")),
]
IDS = [f"{scheme}-on-{more.get('servers', 1)}" for scheme, more in WITHOUT_A_GATE]


def poisoned(monkeypatch: pytest.MonkeyPatch, begin: Callable[[], bool]) -> None:
    """Losses are NaN from when `begin` holds."""
    backward = Precision.backward

    def faulty(self: Precision, loss_of: Callable[..., Tensor], *batch: Tensor, **parts: Any) -> Tensor:
        factor = math.nan if begin() else 1.0
        return backward(self, lambda *batch: loss_of(*batch) * factor, *batch, **parts)

    monkeypatch.setattr(Precision, "backward", faulty)


def config_of(out: Path, scheme: str, **more: Any) -> Config:
    sections = {"checkpoint": {"every": 0.05}, "evaluation": {"every": 0.05}, **more}
    return config_for(out, steps=0, scheme=scheme, stop={"seconds": 30.0}, **sections)


def poisoned_after_two_looks(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    """Losses are NaN once the model has been judged and a checkpoint is there."""
    folder = FolderStore(out / "checkpoints")
    looks, judge_now = itertools.count(), Evaluator.judge_now
    poison: list[bool] = []

    def counted(self: Evaluator) -> None:
        judge_now(self)
        if next(looks) >= 2 and folder.numbers():
            poison.append(True)

    monkeypatch.setattr(Evaluator, "judge_now", counted)
    poisoned(monkeypatch, lambda: bool(poison))


@pytest.mark.parametrize(("scheme", "more"), WITHOUT_A_GATE, ids=IDS)
def test_a_live_run_ends_with_one_line_and_leaves_the_last_finite_model(
    monkeypatch: pytest.MonkeyPatch, threads: Runner, out: Path, scheme: str, more: dict[str, Any]
) -> None:
    poisoned_after_two_looks(monkeypatch, out)
    config = config_of(out, scheme, **more)
    with pytest.raises(RunFailed, match=r"the model has diverged: .*is the last finite one, .*; lower --lr"):
        threads(config)
    assert_nothing_else_is_left(config, out)


def assert_nothing_else_is_left(config: Config, out: Path) -> None:
    assert all(torch.isfinite(v).all() for v in saved(config).values())
    folder = FolderStore(out / "checkpoints")
    assert folder.numbers()
    assert all(folder.manifest(number).finite for number in folder.numbers())


OF_EVERY_WORKER = (
    "^the model has diverged: the last [0-9]+ results, of every worker, had NaN or infinity .*; lower --lr"
)


@pytest.mark.parametrize(
    ("scheme", "why"),
    [
        ("bsp", "^worker [01]: the model has diverged: nobody's part of the mean bsp/[0-9]+ is finite; lower --lr"),
        ("localsgd", "^worker [01]: the model has diverged: nobody's part of the mean localsgd/[0-9]+ is finite"),
        ("gosgd", OF_EVERY_WORKER),
        ("adpsgd", OF_EVERY_WORKER),
    ],
)
def test_workers_end_a_run_in_which_nobody_has_anything_finite(
    monkeypatch: pytest.MonkeyPatch, threads: Runner, out: Path, scheme: str, why: str
) -> None:
    poisoned_after_two_looks(monkeypatch, out)
    config = config_of(out, scheme, servers=0)
    with pytest.raises(RunFailed, match=why):
        threads(config)
    assert_nothing_else_is_left(config, out)


@pytest.mark.parametrize(
    ("scheme", "gate", "why"),
    [
        ("bsp", "off", ": .* the last finite one is that of .*; lower --lr"),
        ("bsp", "warn", ": nobody's part of the mean bsp/75 is finite; lower --lr"),
        ("gosgd", "warn", ": the last 32 results, of every worker, had NaN or infinity .*; lower --lr"),
    ],
)
def test_a_virtual_run_too(monkeypatch: pytest.MonkeyPatch, out: Path, scheme: str, gate: str, why: str) -> None:
    steps = itertools.count()
    poisoned(monkeypatch, lambda: next(steps) >= 300)
    cluster_options = {"step_ms": 10.0, "workers": 4}
    config = config_of(out, scheme, servers=0, cluster=cluster_options, gate={"mode": gate})
    cluster = cluster_of(config, NetworkSpec(), lambda: 0.0)
    with pytest.raises((Diverged, RunBroken), match=rf"the model has diverged{why}"):
        VirtualRun(SimulationSetup(config=config, cluster=cluster), Silent()).run()
    assert all(torch.isfinite(v).all() for v in saved(config).values())
    assert not (out / "summary.json").exists()


def test_without_a_finite_model_none_is_left(monkeypatch: pytest.MonkeyPatch, threads: Runner, out: Path) -> None:
    poisoned(monkeypatch, lambda: True)
    monkeypatch.setattr("paceline.runtime.evaluator.evaluator.finite", lambda v: False)
    config = config_of(out, "bsp", servers=0, **OFF)
    with pytest.raises(RunFailed, match="none was finite before it, so no model was saved"):
        threads(config)
    assert not (out / "model.safetensors").exists()


def own_loop(scheme: str, steps: int, nan_at: int) -> tuple[nn.Linear, paceline.Pace]:
    model = nn.Linear(2, 1)
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), scheme=scheme)
    for step in range(steps):
        loss = model(torch.ones(1, 2)).sum() * (math.nan if step == nan_at else 1.0)
        loss.backward()
        pace.step()
    return model, pace


@pytest.mark.parametrize("scheme", ["gosgd", "adpsgd", "noloco", "prague", "sgp"])
def test_one_nan_does_not_spoil_an_own_loop_of_gossip(scheme: str) -> None:
    model, pace = own_loop(scheme, 42, 3)
    pace.close()
    assert torch.isfinite(model.weight).all()


def test_an_own_loop_keeps_what_it_had_and_is_told() -> None:
    _, pace = own_loop("bsp", 4, 3)
    with pytest.raises(Diverged, match="was not loaded"):
        pace.close()
