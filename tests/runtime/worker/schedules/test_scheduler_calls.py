"""Calls of `scheduler.step()` are noticed, whoever has made the scheduler, and whenever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as torchs

from paceline.runtime.worker.schedules.scheduler_calls import make_step, unwatch, watch

CLASSES = [torchs.LRScheduler, torchs.SequentialLR, torchs.ChainedScheduler, torchs.CosineAnnealingWarmRestarts]


def methods() -> list[Any]:
    return [torchs.LRScheduler._initial_step, *(vars(each)["step"] for each in CLASSES)]


PLAIN = methods()
MakeScheduler = Callable[[torch.optim.Optimizer], Any]


class Noted:
    """A watcher that makes no steps."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers
        self.calls: list[Any] = []
        self.new: list[Any] = []

    def called(self, scheduler: Any) -> None:
        self.calls.append(scheduler)

    def made(self, scheduler: Any) -> None:
        self.new.append(scheduler)


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)


@pytest.fixture
def optimizer() -> torch.optim.Optimizer:
    return sgd()


@pytest.fixture
def noted(optimizer: torch.optim.Optimizer) -> Iterator[Noted]:
    watcher = Noted(optimizer)
    watch(watcher)
    yield watcher
    unwatch(watcher)


class OwnStep(torchs.LRScheduler):
    """A scheduler of the user's own, with a `step` of its own."""

    def get_lr(self) -> list[float | torch.Tensor]:
        return [base / (1 + self.last_epoch) for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)


KINDS: list[MakeScheduler] = [
    lambda o: torchs.OneCycleLR(o, 1.0, total_steps=9),
    lambda o: torchs.LambdaLR(o, lambda step: 0.9**step),
    lambda o: torchs.CosineAnnealingWarmRestarts(o, 4),
    lambda o: torchs.SequentialLR(o, [torchs.LinearLR(o, 0.1), torchs.ExponentialLR(o, 0.9)], [3]),
    lambda o: torchs.ChainedScheduler([torchs.ConstantLR(o, 0.1), torchs.ExponentialLR(o, 0.9)]),
    OwnStep,
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.filterwarnings("ignore:Detected call", "ignore:The epoch parameter")
def test_a_call_reaches_the_watcher_once_and_makes_no_step(
    make: MakeScheduler, optimizer: torch.optim.Optimizer, noted: Noted
) -> None:
    after = make(optimizer)
    assert noted.calls == [], "what a constructor makes is no call of the loop"
    rate = optimizer.param_groups[0]["lr"]
    after.step()
    assert noted.calls == [after]
    assert optimizer.param_groups[0]["lr"] == rate
    for _ in range(3):
        make_step(after)
    assert noted.calls == [after], "nobody is asked about the watcher's own steps"
    assert optimizer.param_groups[0]["lr"] != rate


@pytest.mark.parametrize("make", KINDS)
def test_one_that_was_made_before_is_noticed_as_well(make: MakeScheduler) -> None:
    optimizer = sgd()
    before = make(optimizer)
    watcher = Noted(optimizer)
    watch(watcher)
    before.step()
    unwatch(watcher)
    assert watcher.calls == [before]
    assert watcher.new == []


def test_a_scheduler_made_meanwhile_is_known_to_be_new(optimizer: torch.optim.Optimizer, noted: Noted) -> None:
    assert noted.new == [torchs.ExponentialLR(optimizer, 0.9)]


class Wrapper(torch.optim.Optimizer):
    """What frameworks make of an optimizer."""

    def __init__(self, original: torch.optim.Optimizer) -> None:
        self.original = original

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.original.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Makes no step."""


def test_a_wrapper_of_the_optimizer_is_the_optimizer(optimizer: torch.optim.Optimizer, noted: Noted) -> None:
    scheduler = torchs.ExponentialLR(Wrapper(optimizer), 0.9)
    scheduler.step()
    assert noted.calls == [scheduler]


@pytest.mark.filterwarnings("ignore:Detected call", "ignore:The epoch parameter")
def test_other_optimizers_positions_and_measurements_are_none_of_its_business(
    optimizer: torch.optim.Optimizer, noted: Noted
) -> None:
    other = sgd()
    torchs.ExponentialLR(other, 0.5).step()
    assert other.param_groups[0]["lr"] == 0.5
    torchs.ReduceLROnPlateau(optimizer, factor=0.5, patience=0).step(1.0)
    torchs.CosineAnnealingWarmRestarts(optimizer, 4).step(2)  # type: ignore[arg-type]
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert noted.calls == []


def test_the_classes_are_torchs_own_when_nobody_watches() -> None:
    first, second = Noted(sgd()), Noted(sgd())
    watch(first)
    watch(second)
    unwatch(first)
    assert all(ours is not plain for ours, plain in zip(methods(), PLAIN, strict=True))
    unwatch(second)
    unwatch(second)
    assert methods() == PLAIN


def test_the_state_of_a_scheduler_is_what_it_is_without_a_watcher(
    optimizer: torch.optim.Optimizer, noted: Noted
) -> None:
    scheduler = torchs.ExponentialLR(optimizer, 0.9)
    scheduler.step()
    unwatch(noted)
    assert scheduler.state_dict().keys() == torchs.ExponentialLR(sgd(), 0.9).state_dict().keys()
