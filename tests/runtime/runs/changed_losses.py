"""Changes the losses of the workers of a run, simulated or live."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from paceline.core.effects import Compute, Computed, Train, Trained
from paceline.engine.model.mixed_precision import Precision
from paceline.runtime.simulated.workload import Training

LossOf = Callable[..., Tensor]


def change_losses(monkeypatch: pytest.MonkeyPatch, changed: Callable[[int, LossOf], LossOf]) -> None:
    """From now on each mini-batch of worker `rank` has the loss `changed(rank, loss)`.

    Simulated workers share a thread, live ones are known by theirs.
    """
    work, backward, at_work = Training._work, Precision.backward, threading.local()

    def working(self: Training, rank: int, wanted: Compute | Train) -> Computed | Trained:
        at_work.rank = rank
        return work(self, rank, wanted)

    def other(self: Precision, loss_of: LossOf, *batch: Tensor, **parts: Any) -> Tensor:
        name = threading.current_thread().name
        rank = int(name.removeprefix("worker ")) if name.startswith("worker ") else at_work.rank
        return backward(self, changed(rank, loss_of), *batch, **parts)

    monkeypatch.setattr(Training, "_work", working)
    monkeypatch.setattr(Precision, "backward", other)
