"""Own loops under `tiers`: a group's server is on a worker that trains as well."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.optim.recipe import recipe_of
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.who_updates import fitted
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model
from tests.runtime.own_optimizers import OF_TORCH, Lion, Make

TIMEOUT_S = 30.0


@pytest.mark.parametrize("inner", ["asp", "ssp(staleness=3)", "ksync(k=1)"])
@pytest.mark.parametrize("make", [OF_TORCH["rmsprop in groups"], torch.optim.Adam], ids=["rmsprop", "adam"])
def test_what_others_push_does_not_change_the_model_of_a_speaker_in_the_middle_of_a_step(
    make: Make, inner: str, tmp_path: Path
) -> None:
    """Worker 0 speaks, and computes while worker 1 makes its third step."""
    in_step, went_on = threading.Event(), threading.Event()
    versions: list[list[int]] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for number, (x, y) in enumerate(pace.batches(toy_data(), 8, epochs=1)):
            loss = nn.functional.cross_entropy(model(x), y)
            if pace.rank == 0 and number == 1:
                before = [p._version for p in model.parameters()]
                in_step.set()
                assert went_on.wait(TIMEOUT_S)
                versions.extend([before, [p._version for p in model.parameters()]])
            loss.backward()
            if pace.rank == 1 and number == 1:
                assert in_step.wait(TIMEOUT_S)
            pace.step()
            if pace.rank == 1 and number == 2:
                went_on.set()

    summary, _ = run_loops(
        tmp_path, "tiers", loop, workers=2, optimizer=make, inner=inner, outer="asyncdiloco(h=50)", groups="0,1"
    )
    assert versions[0] == versions[1]
    assert summary.samples == 90


def test_an_optimizer_that_only_its_own_process_can_make_is_refused_with_the_way_out() -> None:
    optimizer = recipe_of(Lion(toy_model().parameters()))
    bsp_inside = Recipe(scheme="tiers", parameters={"inner": "bsp"}, optimizer=optimizer)
    assert fitted(bsp_inside, 1) == bsp_inside
    with pytest.raises(ConfigError, match="updates while its speaker computes; .*Lion: name what makes it"):
        fitted(Recipe(scheme="tiers", parameters={"inner": "asp"}, optimizer=optimizer), 1)
