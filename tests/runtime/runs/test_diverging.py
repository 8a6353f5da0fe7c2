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
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved

WITHOUT_A_GATE = [
    *((scheme, {"servers": 0}) for scheme in ("bsp", "localsgd", "gosgd", "adpsgd")),
    *((scheme, {"gate": {"mode": "off"}}) for scheme in ("asp", "easgd")),
]
IDS = [f"{scheme}-on-{more.get('servers', 1)}" for scheme, more in WITHOUT_A_GATE]


def poisoned(monkeypatch: pytest.MonkeyPatch, begin: Callable[[], bool]) -> None:
    """Losses are NaN from when `begin` holds."""
    backward = Precision.backward

    def faulty(self: Precision, loss_of: Callable[..., Tensor], *batch: Tensor) -> None:
        factor = math.nan if begin() else 1.0
        backward(self, lambda *batch: loss_of(*batch) * factor, *batch)

    monkeypatch.setattr(Precision, "backward", faulty)


def config_of(out: Path, scheme: str, **more: Any) -> Config:
    sections = {"checkpoint": {"every": 0.05}, "evaluation": {"every": 0.05}, **more}
    return config_for(out, steps=0, scheme=scheme, stop={"seconds": 30.0}, **sections)


@pytest.mark.parametrize(("scheme", "more"), WITHOUT_A_GATE, ids=IDS)
def test_a_live_run_ends_with_one_line_and_leaves_the_last_finite_model(
    monkeypatch: pytest.MonkeyPatch, threads: Runner, out: Path, scheme: str, more: dict[str, Any]
) -> None:
    looks, judge_now, folder = itertools.count(), Evaluator.judge_now, FolderStore(out / "checkpoints")
    poison: list[bool] = []

    def counted(self: Evaluator) -> None:
        judge_now(self)
        if next(looks) >= 2 and folder.numbers():
            poison.append(True)

    monkeypatch.setattr(Evaluator, "judge_now", counted)
    poisoned(monkeypatch, lambda: bool(poison))
    config = config_of(out, scheme, **more)
    with pytest.raises(RunFailed, match=r"the model has diverged: .*is the last finite one, .*; lower --lr"):
        threads(config)
    assert all(torch.isfinite(v).all() for v in saved(config).values())
    assert folder.numbers()
    assert all(folder.manifest(number).finite for number in folder.numbers())


def test_a_virtual_run_too(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    steps = itertools.count()
    poisoned(monkeypatch, lambda: next(steps) > 300)
    config = config_of(out, "gosgd", servers=0, cluster={"step_ms": 10.0})
    cluster = cluster_of(config, NetworkSpec(), lambda: 0.0)
    with pytest.raises(Diverged, match=r"the model has diverged: .* the last finite one is that of .*; lower --lr"):
        VirtualRun(SimulationSetup(config=config, cluster=cluster), Silent()).run()
    assert all(torch.isfinite(v).all() for v in saved(config).values())
    assert not (out / "summary.json").exists()


def test_without_a_finite_model_none_is_left(monkeypatch: pytest.MonkeyPatch, threads: Runner, out: Path) -> None:
    poisoned(monkeypatch, lambda: True)
    monkeypatch.setattr("paceline.runtime.evaluator.evaluator.finite", lambda v: False)
    config = config_of(out, "bsp", servers=0)
    with pytest.raises(RunFailed, match="none was finite before it, so no model was saved"):
        threads(config)
    assert not (out / "model.safetensors").exists()


def test_an_own_loop_keeps_what_it_had_and_is_told() -> None:
    model = nn.Linear(2, 1)
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="gosgd")
    for step in range(4):
        loss = model(torch.ones(1, 2)).sum() * (math.nan if step == 3 else 1.0)
        loss.backward()
        pace.step()
    with pytest.raises(Diverged, match="was not loaded"):
        pace.close()
