"""Workers join with one model: the weights of worker 0."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data, toy_model
from tests.runtime.worker.test_pace import weights


def test_everybody_starts_from_the_weights_of_worker_0(out: Path) -> None:
    """The launcher hands them the same ones; a thread of its own spoils those of the others before it joins."""
    data, started = toy_data(), {}

    def loop(pace: Pace, model: nn.Module) -> None:
        started[pace.rank] = weights(model).clone()
        plain_steps(pace, model, data, epochs=1)

    run_loops(out, "bsp", loop)
    assert torch.equal(started[0], started[1])
    assert torch.equal(started[0], weights(toy_model()))


def test_workers_with_unlike_models_are_refused(out: Path) -> None:
    import paceline.runtime.worker.loop.joined_run as module

    flat = module.FlatModel
    turns = iter(range(3))

    class Uneven(flat):  # type: ignore[misc, valid-type]
        def fingerprint(self) -> str:
            return super().fingerprint() + str(next(turns))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FlatModel", Uneven)
        with pytest.raises(RunFailed, match="trains another model than worker 0"):
            run_loops(out, "bsp", lambda pace, model: None)
