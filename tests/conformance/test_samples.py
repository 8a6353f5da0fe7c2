"""The samples of every update are the same in all three ways of running: `paceline train`, a loop of one's own, and the
simulator.

Two workers alike share 128 samples, 8 in a batch, for two epochs. A contribution is what a worker hands over at an
exchange; the k-th ones of both workers are one round of a scheme in lock-step.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.config import Config, build
from paceline.core.effects import Computed, Trained
from paceline.core.scheme import make, names
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps.local_work import LocalWork
from tests.runtime.conftest import in_threads
from tests.runtime.own_loops import run_loops, toy_data
from tests.runtime.simulated.virtual_runs import FAST

WORKERS, SAMPLES, BATCH, EPOCHS = 2, 128, 8, 2
TOTAL = SAMPLES * EPOCHS
Contributions = list[list[int]]
"""The samples of each, in order, by worker."""
Found = Callable[..., Contributions]


class Recorder:
    """Notes what each worker hands over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._of: dict[int, list[int]] = {}
        self._works: list[LocalWork] = []  # so that no number is used twice
        done = LocalWork.done

        def noted(work: LocalWork, *args: Any, **more: Any) -> Computed | Trained | None:
            result = done(work, *args, **more)
            if result is not None:
                self._works.append(work)
                self._of.setdefault(id(work), []).append(result.samples)
            return result

        monkeypatch.setattr(LocalWork, "done", noted)

    def taken(self) -> Contributions:
        found, self._of = list(self._of.values()), {}
        return found


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def config_of(scheme: str, out: Path, parameters: dict[str, Any], workers: int) -> Config:
    return build(
        {
            "run": {"scheme": scheme, "out": str(out)},
            "cluster": {"workers": workers, "servers": 1, "timeout": 60.0, "device": "cpu", "step_ms": 5.0},
            "data": {"name": "synthetic", "batch_size": BATCH, "samples": SAMPLES},
            "model": {"name": "mlp", "width": 0.25},
            "stop": {"epochs": float(EPOCHS)},
            scheme: parameters,
        }
    )


def trained(scheme: str, out: Path, parameters: dict[str, Any], workers: int) -> None:
    in_threads(config_of(scheme, out, parameters, workers))


def simulated(scheme: str, out: Path, parameters: dict[str, Any], workers: int) -> None:
    config = config_of(scheme, out, parameters, workers)
    VirtualRun(SimulationSetup(config=config, cluster=cluster_of(config, FAST, lambda: 0.0)), Silent()).run(leave=False)


def looped(scheme: str, out: Path, parameters: dict[str, Any], workers: int) -> None:
    data = toy_data(SAMPLES)

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(data, BATCH, epochs=EPOCHS):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    run_loops(out, scheme, loop, workers=workers, **parameters)


WAYS = {"train": trained, "loop": looped, "simulate": simulated}
PARAMETERS: dict[str, dict[str, Any]] = {
    "asyncdiloco": {"h": 4},
    "decoupled": {"h": 4, "fragments": 1, "tau": 0},
    "diloco": {"h": 4},
    "eamsgd": {"tau": 4},
    "easgd": {"tau": 4},
    "halos": {"h": 4},
    "localsgd": {"tau": 4},
    "muloco": {"h": 4},
    "noloco": {"h": 4},
    "slowmo": {"tau": 4},
    "sparseloco": {"h": 4},
}
"""So that the last exchange of a run is a whole one."""
BY_SPEED = ("esync", "lbbsp")
"""Schemes whose local steps or batches follow measured seconds."""


@pytest.fixture
def samples(tmp_path: Path, recorder: Recorder) -> Found:
    def found(scheme: str, way: str, workers: int = WORKERS) -> Contributions:
        WAYS[way](scheme, tmp_path / way, PARAMETERS.get(scheme, {}), workers)
        return recorder.taken()

    return found


@pytest.mark.parametrize("scheme", [name for name in names() if make(name, {}).equal_rounds])
def test_a_round_in_lock_step_has_the_same_samples_in_every_way_of_running(scheme: str, samples: Found) -> None:
    train, loop, simulate = (samples(scheme, way) for way in WAYS)
    assert train == loop == simulate
    assert [sum(mine) for mine in train] == [TOTAL // WORKERS] * WORKERS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", [name for name in names() if not make(name, {}).equal_rounds])
def test_elsewhere_contributions_have_the_same_samples_whoever_makes_them(
    scheme: str, way: str, samples: Found
) -> None:
    """How many each worker makes is a matter of time, and so is where local steps end that are the last ones."""
    found = Counter(itertools.chain(*samples(scheme, way)))
    assert sum(size * count for size, count in found.items()) == TOTAL
    if scheme in BY_SPEED:
        return
    if make(scheme, {}).trains_locally:
        longest = BATCH * max(PARAMETERS.get(scheme, {}).values(), default=1)
        assert max(found) == longest
        assert all(size % BATCH == 0 for size in found)
    else:
        assert found == {BATCH: TOTAL // BATCH}


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_a_round_of_lbbsp_has_a_batch_of_each_worker(way: str, workers: int, samples: Found) -> None:
    """Before the last ones, which have what is left."""
    rounds = [sum(sizes) for sizes in zip(*samples("lbbsp", way, workers=workers), strict=False)]
    early = TOTAL // (workers * BATCH) // 2
    assert rounds[:early] == [workers * BATCH] * early
    assert sum(rounds) <= TOTAL
