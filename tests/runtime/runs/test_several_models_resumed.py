"""Several models in one loop: a run that is interrupted goes on with all of them, from a checkpoint or a file of its
own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from paceline.checkpoint.folder_store import CHECKPOINTS
from paceline.runtime.worker.pace import Pace
from tests.runtime.worker.gan import BATCH, NOISE, Make, X, adams, assert_same, of_discriminator, of_generator, run

DATA = TensorDataset(X, NOISE)
EPOCHS = 4
EVERY = {"every": 0.001}
"""Seconds: a checkpoint whenever the evaluator looks, and one at the end."""
States = dict[int, Any]


def unlike(of: Any) -> dict[str, torch.optim.Optimizer]:
    """Returns optimizers of two classes, which only workers can call."""
    momentum = torch.optim.SGD(of["D"].parameters(), lr=0.1, momentum=0.9)
    return {"D": momentum, "G": torch.optim.AdamW(of["G"].parameters(), lr=0.02)}


def loop_of(epochs: int, states: States | None = None) -> Callable[[Pace, Any], None]:
    def loop(pace: Pace, of: Any) -> None:
        for x, z in pace.batches(DATA, BATCH, epochs=epochs):
            of_discriminator(of, x, z).backward()
            pace.step("D")
            of_generator(of, x, z).backward()
            pace.step("G")
        if states is not None:
            states[pace.rank] = pace.state_dict()

    return loop


RUNS: list[tuple[str, int, Make]] = [
    ("bsp", 1, adams),
    ("bsp", 2, adams),
    ("bsp", 0, unlike),
    ("localsgd", 1, adams),
    ("localsgd", 0, unlike),
]


@pytest.mark.parametrize("by", ["checkpoint", "state"])
@pytest.mark.parametrize(("scheme", "servers", "make"), RUNS)
def test_a_gan_that_goes_on_ends_as_one_that_was_never_interrupted(
    scheme: str, servers: int, make: Make, by: str, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"workers": 2, "servers": servers, "make": make}
    more |= {"tau": 10} if scheme == "localsgd" else {}  # steps of both models: 20 an epoch
    _, wanted = run(tmp_path / "whole", scheme, loop_of(EPOCHS), **more)
    half, states = tmp_path / "half", States()
    if by == "checkpoint":
        run(half, scheme, loop_of(EPOCHS // 2), checkpoint=EVERY, **more)
        (half / "summary.json").unlink()
        assert list((half / CHECKPOINTS).iterdir())
        summary, found = run(half, scheme, loop_of(EPOCHS), checkpoint={**EVERY, "resume": "auto"}, **more)
    else:
        run(half, scheme, loop_of(EPOCHS // 2, states), **more)
        summary, found = run(tmp_path / "rest", scheme, loop_of(EPOCHS), states=states, **more)
    assert summary.samples == EPOCHS * len(DATA)
    assert_same(found[0], wanted[0])
