"""What workers remember goes on with the run: to the last bit where rounds are in lock-step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.runtime.checkpointing.resume import find
from tests.runtime.conftest import Runner
from tests.runtime.one_process import Weights, resumed, saved

MOMENTUM = {"name": "sgd", "lr": 0.05, "momentum": 0.9}


def in_two(run: Runner, out: Path, first: dict[str, Any], second: dict[str, Any], *, exact: bool = True) -> Weights:
    """The weights after 15 steps with `first` and 15 more with `second`, which have to be a run in one go."""
    run(resumed(out, 15, **first))
    again = resumed(out, 30, "auto", **second)
    start, _ = find(again)
    assert start.exact == exact
    summary = run(again)
    assert [worker.steps for worker in summary.workers] == [30, 30]
    return saved(again)


def in_one(run: Runner, out: Path, how: dict[str, Any]) -> Weights:
    whole = resumed(out / "whole", 30, **how)
    run(whole)
    return saved(whole)


def differing(got: Weights, wanted: Weights) -> list[str]:
    return [name for name, tensor in wanted.items() if not torch.equal(got[name], tensor)]


ADAM = {"name": "adam", "lr": 0.002}


FABRICS: dict[str, list[dict[str, Any]]] = {
    "one server": [{"servers": 1, "optimizer": MOMENTUM}] * 2,
    "two servers become three": [
        {"servers": 2, "cluster": {"slice_mb": 0.002}, "optimizer": ADAM},
        {"servers": 3, "cluster": {"slice_mb": 0.003}, "optimizer": ADAM},
    ],
    "no server": [{"servers": 0, "optimizer": MOMENTUM}] * 2,
}


@pytest.mark.parametrize("fabric", FABRICS)
def test_bsp_goes_on_to_the_last_bit(threads: Runner, out: Path, fabric: str) -> None:
    first, second = ({"schedule": {"name": "step", "every": 0.5}, **part} for part in FABRICS[fabric])
    assert differing(in_two(threads, out, first, second), in_one(threads, out, first)) == []


def test_local_optimizers_and_rounds_go_on_to_the_last_bit(threads: Runner, out: Path) -> None:
    how: dict[str, Any] = {"scheme": "localsgd", "servers": 0, "optimizer": MOMENTUM, "localsgd": {"tau": 5}}
    assert differing(in_two(threads, out, how, how, exact=False), in_one(threads, out, how)) == []


RULES: dict[str, dict[str, Any]] = {
    "adpsgd": {"servers": 0, "optimizer": MOMENTUM},
    "sgp": {"servers": 0, "optimizer": ADAM, "schedule": {"name": "step", "every": 0.5}},
    "eamsgd": {"servers": 1, "eamsgd": {"tau": 5}},
}


@pytest.mark.parametrize("scheme", RULES)
def test_the_optimizer_of_a_workers_own_updates_goes_on_to_the_last_bit(
    threads: Runner, out: Path, scheme: str
) -> None:
    """One worker: among several, who meets whom is a matter of time."""
    how = {"scheme": scheme, "workers": 1, **RULES[scheme]}
    threads(resumed(out, 15, **how))
    again = resumed(out, 30, "auto", **how)
    assert threads(again).workers[0].steps == 30
    assert differing(saved(again), in_one(threads, out, how)) == []


@pytest.mark.parametrize("scheme", ["adpsgd", "sgp"])
def test_under_gossip_each_worker_has_its_own_optimizer_back(threads: Runner, out: Path, scheme: str) -> None:
    how: dict[str, Any] = {"scheme": scheme, "servers": 0, "optimizer": MOMENTUM}
    threads(resumed(out, 7, **how))
    again = resumed(out, 12, "auto", **how)
    start, _ = find(again)
    kept = [start.memories(rank) for rank in range(2)]
    momenta = [of.optimizer["momentum"] for of in kept if of is not None]
    assert len(momenta) == 2
    assert not torch.equal(*momenta)
    assert all(momentum.count_nonzero() > 0 for momentum in momenta)
    assert [worker.steps for worker in threads(again).workers] == [12, 12]


def test_dropout_goes_on_to_the_last_bit(processes: Runner, out: Path) -> None:
    how: dict[str, Any] = {"optimizer": MOMENTUM, "model": {"dropout": 0.3}}
    whole = in_one(processes, out, {**how, "servers": 2})
    assert differing(in_two(processes, out, {**how, "servers": 2}, {**how, "servers": 3}), whole) == []
