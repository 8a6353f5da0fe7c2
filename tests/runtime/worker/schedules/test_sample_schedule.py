"""Schedulers by the samples of all workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.schedules.sample_schedule import SampleSchedule
from tests.runtime.own_loops import run_loops, toy_data
from tests.runtime.runs.test_trained_and_rest import (
    assert_same,
    held,
    model_for,
    shares_of,
)
from tests.runtime.worker.steps.test_drop_in import adamw

EVEN = 15
"""Samples of a batch, all of them as many for one worker and for two."""


def cosine(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)


def warmed_up(optimizer: torch.optim.Optimizer) -> Any:
    parts = [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
        torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8),
    ]
    return torch.optim.lr_scheduler.SequentialLR(optimizer, parts, milestones=[3])


def union_with(scheduler_of: Callable[[torch.optim.Optimizer], Any], workers: int) -> nn.Module:
    """One process with the batches of all; its scheduler makes a step after each of them."""
    model = model_for()
    optimizer = adamw(held(model))
    scheduler = scheduler_of(optimizer)
    for of_each in zip(*shares_of(workers, 2, EVEN), strict=True):
        optimizer.zero_grad()
        samples = sum(len(y) for _, y in of_each)
        for x, y in of_each:
            (nn.functional.cross_entropy(model(x), y, reduction="sum") / samples).backward()
        optimizer.step()
        scheduler.step()
    return model


_here = threading.local()


@pytest.mark.parametrize(
    ("scheme", "workers", "servers"), [("bsp", 2, 0), ("bsp", 2, 2), ("asp", 1, 1), ("diloco", 1, 0)]
)
@pytest.mark.parametrize("scheduler_of", [cosine, warmed_up])
def test_a_scheduler_makes_a_step_for_so_many_samples_of_all_workers(
    scheduler_of: Callable[[torch.optim.Optimizer], Any], scheme: str, workers: int, servers: int, tmp_path: Path
) -> None:
    """Not one for each batch of each worker. The loop may go on calling the scheduler's step."""

    def trained(pace: Pace, model: nn.Module) -> None:
        scheduler = pace.scheduler(scheduler_of(_here.optimizer), every=EVEN * workers)
        for x, y in pace.batches(toy_data(), EVEN, epochs=2):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            scheduler.step()

    def make(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        _here.optimizer = adamw(parameters)
        return _here.optimizer  # type: ignore[no-any-return]

    more: dict[str, Any] = {"make_model": model_for, "held": held}
    if scheme == "diloco":  # whole rounds, of which each is what was trained in it
        more |= {"h": 4, "outer_lr": 1.0, "outer_momentum": 0.0}
    _, models = run_loops(tmp_path, scheme, trained, workers=workers, servers=servers, optimizer=make, **more)
    for model in models.values():
        assert_same(model, union_with(scheduler_of, workers), buffers=False)


@pytest.mark.filterwarnings("ignore:Detected call")
def test_it_makes_the_steps_that_are_due_and_has_all_else_of_the_scheduler() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    samples = [0]
    schedule = SampleSchedule(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), 10, lambda: samples[0])
    for samples[0], due in ((0, 0), (9, 0), (10, 1), (19, 1), (45, 4), (45, 4)):
        schedule.follow()
        schedule.step()
        assert schedule.get_last_lr() == [0.5**due]


@pytest.mark.parametrize(
    ("make", "every", "words"),
    [
        (torch.optim.lr_scheduler.ReduceLROnPlateau, 8, "goes by what you measure: pace.plateau"),
        (cosine, 0, "every=0"),
    ],
)
def test_what_cannot_go_by_samples_is_refused(make: Any, every: int, words: str) -> None:
    scheduler = make(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))
    with pytest.raises(ConfigError, match=words):
        SampleSchedule(scheduler, every, lambda: 0)
