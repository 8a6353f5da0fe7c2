"""A scheduler of the user's own, in a loop of one's own: all that it changes is followed, for whom it belongs to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.optim.optimizers import SGD
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.vectors.flat import Flat
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps.lr_watch import LrWatcher
from tests.runtime.own_loops import run_loops
from tests.runtime.schedules import STEPS, Make, MakeScheduler, assert_followed, batches, mine, noted


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def nesterov(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


class ByHand:
    """Changes what no scheduler of torch does."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._group = optimizer.param_groups[0]

    def step(self) -> None:
        self._group["weight_decay"] *= 1.5
        self._group["lr"] *= 0.9
        if "eps" in self._group:
            self._group["eps"] *= 3.0


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS + 1)


@pytest.mark.parametrize("servers", [0, 1, 3])
@pytest.mark.parametrize("scheduler_of", [one_cycle, ByHand], ids=["one cycle", "by hand"])
@pytest.mark.parametrize("make", [sgd, nesterov, adamw])
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_all_that_a_scheduler_changes_is_what_torch_makes_of_it(
    out: Path, make: Make, scheduler_of: MakeScheduler, servers: int
) -> None:
    assert_followed(scheduler_of, make, "asp" if servers else "bsp", servers, out)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_what_a_worker_contributes_counts_at_its_own_rate_however_slow_rank_0_is(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It used to be that of rank 0: here 0.067 and more for the last steps of the others, where 0 was due."""
    applied: list[float] = []
    apply = SGD.apply

    def seen(rule: SGD, w: Flat, g: Flat, lr: float, *more: Any) -> Flat:
        applied.append(lr)
        return apply(rule, w, g, lr, *more)

    monkeypatch.setattr(SGD, "apply", seen)
    used: dict[int, list[float]] = {0: [], 1: [], 2: []}

    def loop(pace: Pace, model: nn.Module) -> None:
        group = mine.optimizer.param_groups[0]
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(mine.optimizer, T_max=STEPS - 1)
        for x, y in batches(pace.rank):
            nn.functional.cross_entropy(model(x), y).backward()
            used[pace.rank].append(group["lr"])
            time.sleep(0.0 if pace.rank else 0.01)
            pace.step(len(y))
            scheduler.step()

    run_loops(out, "asp", loop, optimizer=noted(lambda p: torch.optim.SGD(p, lr=0.1)))
    assert sorted(applied) == pytest.approx(sorted(rate for rates in used.values() for rate in rates))
    assert all(rates[-1] == pytest.approx(0.0) for rates in used.values())
    assert applied[-1] == pytest.approx(0.0)
    assert capsys.readouterr().err.count("runs at that worker's pace") == 1


def test_what_no_recipe_can_say_is_refused_when_it_is_changed() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    followed = LrWatcher(optimizer, recipe_of(optimizer))
    assert followed.changed() is None
    optimizer.param_groups[0]["dampening"] = 0.5
    with pytest.raises(ConfigError, match="dampening was set to 0.5 while training"):
        followed.changed()
