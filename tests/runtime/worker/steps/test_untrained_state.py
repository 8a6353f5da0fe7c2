"""What is not trained begins with that of worker 0."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops
from tests.runtime.runs.test_trained_and_rest import held, model_for


def test_all_begin_with_what_worker_0_has_of_the_rest_too(tmp_path: Path) -> None:
    """Frozen parameters, those outside the optimizer, and buffers of any type; the trained ones as ever."""
    made: list[nn.Module] = []

    def another() -> nn.Module:
        model = model_for(seed=len(made))
        model.register_buffer("counts", torch.arange(3) + len(made))
        model.register_parameter("low", nn.Parameter(torch.full((3,), float(len(made))).half(), requires_grad=False))
        made.append(model)
        return model

    def no_steps(pace: Pace, model: nn.Module) -> None:
        found[pace.rank] = {name: t.clone() for name, t in model.state_dict().items()}

    found: dict[int, dict[str, Tensor]] = {}
    run_loops(tmp_path, "bsp", no_steps, workers=3, make_model=another, held=held)
    for rank in (1, 2):
        for name, wanted in found[0].items():
            assert torch.equal(found[rank][name], wanted), name
