"""Loops with a scheduler of the user's own, and the plain loop that they have to equal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model

STEPS = 12
mine = threading.local()
Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], Any]


def noted(make: Make) -> Make:
    """The loop of a worker finds its optimizer in its thread."""

    def made(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        mine.optimizer = make(parameters)
        return mine.optimizer  # type: ignore[no-any-return]

    return made


def plain(make: Make, scheduler_of: MakeScheduler) -> nn.Module:
    model = toy_model()
    optimizer = make(model.parameters())
    scheduler = scheduler_of(optimizer)
    for x, y in batches(0):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()
    return model


def batches(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    x, y = toy_data().tensors
    return [(x[at : at + 7], y[at : at + 7]) for at in range(rank, rank + STEPS * 5, 5)]


def assert_followed(scheduler_of: MakeScheduler, make: Make, scheme: str, servers: int, out: Path) -> None:
    """A worker that is alone with so many servers trains what the plain loop with this scheduler does."""

    def loop(pace: Pace, model: nn.Module) -> None:
        scheduler = scheduler_of(mine.optimizer)
        for x, y in batches(0):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(len(y))
            scheduler.step()

    _, models = run_loops(out, scheme, loop, workers=1, servers=servers, optimizer=noted(make))
    for found, wanted in zip(models[0].parameters(), plain(make, scheduler_of).parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
