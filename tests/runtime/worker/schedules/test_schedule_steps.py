"""The length of torch's schedulers, and the steps that are made of them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as torchs

from paceline.runtime.worker.schedules.schedule_steps import (
    ScheduleSteps,
    ends_with_run,
    is_over,
    length_of,
    position_of,
)

MakeScheduler = Callable[[torch.optim.Optimizer], Any]


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)


def by_transformers(step: int, *, num_warmup_steps: int, num_training_steps: int) -> float:
    """As the function behind `get_linear_schedule_with_warmup`."""
    return max(0.0, (num_training_steps - step) / (num_training_steps - num_warmup_steps))


def linear_of_transformers(optimizer: torch.optim.Optimizer) -> Any:
    told = functools.partial(by_transformers, num_warmup_steps=2, num_training_steps=12)
    return torchs.LambdaLR(optimizer, told)


def warmed_up(optimizer: torch.optim.Optimizer, then: MakeScheduler) -> Any:
    return torchs.SequentialLR(optimizer, [torchs.LinearLR(optimizer, 0.1, total_iters=3), then(optimizer)], [3])


LENGTHS: list[tuple[MakeScheduler, int | None, bool]] = [
    (lambda o: torchs.OneCycleLR(o, 1.0, total_steps=12), 12, True),
    (lambda o: torchs.CosineAnnealingLR(o, T_max=12), 12, True),
    (lambda o: torchs.PolynomialLR(o, total_iters=12), 12, True),
    (lambda o: torchs.LinearLR(o, 0.1, total_iters=12), 12, False),
    (lambda o: torchs.LinearLR(o, 1.0, 0.1, total_iters=12), 12, True),
    (lambda o: torchs.ConstantLR(o, 0.1, total_iters=12), 12, False),
    (lambda o: torchs.MultiStepLR(o, [5, 12]), 12, False),
    (linear_of_transformers, 12, True),
    (lambda o: warmed_up(o, lambda p: torchs.CosineAnnealingLR(p, T_max=9)), 12, True),
    (lambda o: warmed_up(o, lambda p: torchs.ExponentialLR(p, 0.9)), 3, False),
    (lambda o: warmed_up(o, lambda p: torchs.OneCycleLR(p, 1.0, total_steps=9)), 12, True),
    (lambda o: torchs.ChainedScheduler([torchs.PolynomialLR(o, 12), torchs.ExponentialLR(o, 0.9)]), 12, True),
    (lambda o: torchs.StepLR(o, 4), None, False),
    (lambda o: torchs.LambdaLR(o, lambda step: 1.0), None, False),
    (lambda o: torchs.CosineAnnealingWarmRestarts(o, 4), None, False),
]


@pytest.mark.parametrize(("make", "length", "ends"), LENGTHS)
@pytest.mark.filterwarnings("ignore:Detected call", "ignore:The epoch parameter")
def test_a_scheduler_says_how_long_it_is(make: MakeScheduler, length: int | None, ends: bool) -> None:
    scheduler = make(sgd())
    assert length_of(scheduler) == length
    assert ends_with_run(scheduler) == ends
    assert position_of(scheduler) == 0
    for _ in range(5):
        scheduler.step()
    assert position_of(scheduler) == 5


@pytest.mark.parametrize("make", [make for make, length, _ in LENGTHS if length])
@pytest.mark.parametrize("made", [0, 1, 10, 11, 12, 13, 40])
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_steps_are_torchs_and_one_too_many_is_left_out_where_torch_refuses_it(make: MakeScheduler, made: int) -> None:
    ours, theirs = sgd(), sgd()
    steps, scheduler = ScheduleSteps(make(ours), says=False), make(theirs)
    for due in range(0, made + 1, 3):
        steps.make_due(due)
    steps.make_due(made)
    steps.make_due(made - 1)  # what was made is not undone
    theirs._opt_called = True  # type: ignore[attr-defined]
    for _ in range(made):
        if not is_over(scheduler):
            scheduler.step()
    assert ours.param_groups[0]["lr"] == theirs.param_groups[0]["lr"]
    assert copy.deepcopy(steps.scheduler.state_dict()).keys() == scheduler.state_dict().keys()


@pytest.mark.parametrize(
    ("make", "made", "lacks", "past"),
    [
        (lambda o: torchs.OneCycleLR(o, 1.0, total_steps=100), 33, True, False),
        (lambda o: torchs.OneCycleLR(o, 1.0, total_steps=100), 96, False, False),
        (lambda o: torchs.OneCycleLR(o, 1.0, total_steps=100), 104, False, False),
        (lambda o: torchs.OneCycleLR(o, 1.0, total_steps=100), 300, False, True),
        (lambda o: torchs.CosineAnnealingLR(o, T_max=100), 300, False, True),
        (lambda o: torchs.LinearLR(o, 0.1, total_iters=100), 300, False, False),  # a warm-up
        (lambda o: torchs.StepLR(o, 30), 10, False, False),
        (lambda o: torchs.CosineAnnealingLR(o, T_max=10), 9, False, False),  # whose loop left out the last one
    ],
)
def test_a_schedule_that_clearly_misses_its_end_is_named(
    make: MakeScheduler, made: int, lacks: bool, past: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ScheduleSteps(make(sgd()), says=True)
    steps.make_due(made)
    for _ in range(2):  # once
        steps.name_past("see why")
        steps.name_lack("see why")
    told = capsys.readouterr().err
    assert ("of its 100 steps: see why" in told) == lacks
    assert ("has made its 100 steps, and the run goes on: see why" in told) == past
    assert told.count("see why") == lacks + past


def test_only_one_worker_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    ScheduleSteps(torchs.OneCycleLR(sgd(), 1.0, total_steps=100), says=False).name_lack("see why")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("make", [make for make, _, _ in LENGTHS])
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_rates_that_are_scaled_stay_scaled(make: MakeScheduler) -> None:
    optimizers = sgd(), sgd()
    ours, theirs = (ScheduleSteps(make(optimizer), says=False) for optimizer in optimizers)
    for steps in (ours, theirs):
        steps.make_due(4)
    ours.scale(0.5)
    optimizers[0].param_groups[0]["lr"] *= 0.5
    for due in range(5, 12):
        ours.make_due(due)
        theirs.make_due(due)
        assert optimizers[0].param_groups[0]["lr"] == pytest.approx(0.5 * optimizers[1].param_groups[0]["lr"])
