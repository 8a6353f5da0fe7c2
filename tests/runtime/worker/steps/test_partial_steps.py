"""Steps of one model at a time, or of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import toy_data
from tests.runtime.worker.gan import (
    BATCH,
    NOISE,
    X,
    adams,
    assert_same,
    batches,
    models,
    of_discriminator,
    of_generator,
    run,
)


@pytest.mark.usefixtures("alone")
def test_a_step_of_all_trains_all_and_calls_of_zero_grad_may_be_left_out() -> None:
    """An autoencoder of two models: one loss, one step. A step of one leaves no gradient behind for another."""
    of, wanted = models(), models()
    optimizers = adams(wanted)
    for x, z in batches():
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        of_generator(wanted, x, z).backward()
        for optimizer in optimizers.values():
            optimizer.step()
        wanted["D"].zero_grad()
        of_discriminator(wanted, x, z).backward()
        optimizers["D"].step()
    with paceline.join(of, adams(of), scheme="bsp") as pace:
        for x, z in batches():
            of_generator(of, x, z).backward()
            pace.step()
            of_discriminator(of, x, z).backward()
            pace.step("D")
    assert_same(of, wanted)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "localsgd"])
def test_a_batch_is_trained_once_though_two_models_make_a_step_of_it(scheme: str, tmp_path: Path) -> None:
    now: list[int] = []

    def loop(pace: Pace, of: Any) -> None:
        for x, _ in pace.batches(toy_data(), BATCH, epochs=None):
            for name, loss in (("D", of_discriminator), ("G", of_generator)):
                loss(of, x, NOISE[: len(x)]).backward()
                pace.step(name)
        now.append(pace.steps)

    summary, _ = run(tmp_path, scheme, loop, adams, workers=2, stop={"epochs": 3.0})
    assert summary.samples == 3 * len(X)
    assert sum(worker.steps for worker in summary.workers) >= 2 * 3 * len(X) // BATCH
