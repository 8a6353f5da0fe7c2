"""Parameter groups: a run ends as the plain loop ends, and two workers as one process with the union of their batches.

The model has frozen parts, a layer outside the optimizer, one that is never used and one only now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.engine.optim.lars_lamb import LAMB
from paceline.runtime.worker.pace import Pace
from tests.engine.optim.grouped import by_rate, decayed_and_not
from tests.runtime.own_loops import plain_steps, run_loops, toy_data
from tests.runtime.runs.test_trained_and_rest import BATCH, assert_same, held, model_for, plain, union_of_batches
from tests.runtime.schedules import assert_followed

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def layer_wise(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    every = list(parameters)
    return LAMB([{"params": every[::2], "weight_decay": 0.1}, {"params": every[1::2], "lr": 0.005}], lr=0.02)


def loop(pace: Pace, model: nn.Module) -> None:
    plain_steps(pace, model, toy_data(), batch_size=BATCH, epochs=2)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("scheme", ["asp", "bsp", "esync"])
@pytest.mark.parametrize("make", [decayed_and_not, by_rate, layer_wise])
def test_one_worker_trains_what_torch_would(make: Make, scheme: str, servers: int, tmp_path: Path) -> None:
    _, models = run_loops(
        tmp_path, scheme, loop, workers=1, servers=servers, make_model=model_for, optimizer=make, held=held
    )
    assert_same(models[0], plain(make))


@pytest.mark.parametrize("make", [decayed_and_not, by_rate])
def test_so_it_does_with_slices_that_leave_early(make: Make, tmp_path: Path) -> None:
    cluster = {"slice_mb": 0.00005, "overlap": "on"}
    more: dict[str, Any] = {"make_model": model_for, "optimizer": make, "held": held}
    _, models = run_loops(tmp_path, "asp", loop, workers=1, servers=2, cluster=cluster, sockets=True, **more)
    assert_same(models[0], plain(make))


@pytest.mark.parametrize("servers", [0, 1, 3])
@pytest.mark.parametrize("make", [decayed_and_not, by_rate])
def test_two_workers_train_what_one_process_with_both_batches_would(make: Make, servers: int, tmp_path: Path) -> None:
    _, models = run_loops(
        tmp_path, "bsp", loop, workers=2, servers=servers, make_model=model_for, optimizer=make, held=held
    )
    for model in models.values():
        assert_same(model, union_of_batches(make, 2), buffers=False)


class ByHand:
    """Each group goes its own way, as with a LambdaLR of several functions."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._groups = optimizer.param_groups

    def step(self) -> None:
        for number, group in enumerate(self._groups):
            group["lr"] *= 0.9 - 0.2 * number
            group["weight_decay"] *= 1.0 + 0.1 * number


@pytest.mark.parametrize("servers", [0, 2])
@pytest.mark.parametrize("make", [decayed_and_not, by_rate])
def test_what_a_scheduler_changes_in_each_group_is_followed(make: Make, servers: int, tmp_path: Path) -> None:
    assert_followed(ByHand, make, "asp" if servers else "bsp", servers, tmp_path)
