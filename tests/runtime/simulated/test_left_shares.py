"""In virtual time, too, each sample of an epoch is trained once, whoever leaves when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from paceline.engine.data.batches import Batches
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import Fault
from tests.runtime.simulated.virtual_runs import setting

SAMPLES, EPOCHS = 120, 2
TWICE = Counter(dict.fromkeys(range(SAMPLES), EPOCHS))
EQUAL = ["bsp", "localsgd", "diloco", "slowmo", "postlocal", "sgp"]


def trained(monkeypatch: pytest.MonkeyPatch, scheme: str, *faults: Fault) -> Counter[int]:
    """How often each sample was in a batch."""
    seen: Counter[int] = Counter()
    some = Batches._some

    def noted(self: Batches, samples: int) -> Any:
        part = some(self, samples)
        seen.update(part.tolist() if part is not None else ())
        return part

    monkeypatch.setattr(Batches, "_some", noted)
    data = {"name": "synthetic", "samples": SAMPLES, "batch_size": 8}
    plain = setting(scheme, on={"slowdown": [1, 1, 1], "servers": 1}, data=data, stop={"epochs": float(EPOCHS)})
    virtual = VirtualRun(replace(plain, cluster=replace(plain.cluster, faults=faults)), Silent())
    assert virtual.run(leave=False).reason == "epochs"
    return seen


@pytest.mark.parametrize("at_s", [0.001, 0.015, 0.045, 0.075])
@pytest.mark.parametrize("scheme", EQUAL)
def test_what_a_worker_leaves_is_trained_by_the_others(
    monkeypatch: pytest.MonkeyPatch, scheme: str, at_s: float
) -> None:
    assert trained(monkeypatch, scheme, Fault(kind="leave", at_s=at_s, workers=(1,))) == TWICE


@pytest.mark.parametrize("scheme", ["bsp", "localsgd"])
def test_so_it_is_where_two_leave_and_one_is_back(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    leave, back = Fault(kind="leave", at_s=0.015, workers=(0, 2)), Fault(kind="join", at_s=0.055, workers=(2,))
    assert trained(monkeypatch, scheme, leave, back) == TWICE


def test_what_a_worker_was_at_when_it_crashed_is_trained_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(monkeypatch, "bsp", Fault(kind="crash", at_s=0.015, workers=(1,)))
    assert found.keys() == TWICE.keys()
    assert sorted(Counter(found.values()).items()) == [(2, SAMPLES - 8), (3, 8)], "one batch was under way"
