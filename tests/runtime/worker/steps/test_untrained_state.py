"""What is not trained begins with that of worker 0."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.engine.model.trainable import Rest
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps.untrained_state import SharedRest
from tests.runtime.own_loops import run_loops, toy_data
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


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "gosgd"])
@pytest.mark.parametrize("width", [1, 64])
def test_it_may_be_longer_than_what_is_trained(tmp_path: Path, scheme: str, width: int) -> None:
    """Few numbers are trained, and only worker 0 has the body that all are to have."""
    made: list[nn.Module] = []

    def another() -> nn.Module:
        torch.manual_seed(len(made))
        body = nn.Linear(4, 64).requires_grad_(False)
        made.append(nn.Sequential(body, nn.AdaptiveAvgPool1d(width), nn.Linear(width, 1, bias=False)))
        return made[-1]

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 8):
            nn.functional.mse_loss(model(x[:, :4])[:, 0], y.float()).backward()
            pace.step()

    head = lambda model: model[2].parameters()  # noqa: E731
    run_loops(tmp_path, scheme, loop, workers=2, make_model=another, held=head, sockets=True)
    assert torch.equal(made[0][0].weight, made[1][0].weight)  # type: ignore[index]


def test_what_a_worker_has_taken_is_what_the_next_one_takes_from_it() -> None:
    """Worker 0 alone has loaded numbers of its own. It is away when worker 2 comes back and asks worker 1."""
    published: dict[int, dict[str, Any]] = {rank: {} for rank in range(3)}

    def begun(rank: int, value: float) -> tuple[nn.Module, SharedRest]:
        model = nn.Linear(3, 2)
        model.register_buffer("frozen", torch.full((4,), value))
        node = SimpleNamespace(published=published[rank], read_state=lambda whom, what: published[whom][what](0))
        session: Any = SimpleNamespace(node=node, reach=lambda who: None)
        return model, SharedRest(session, Rest(model, dict(model.named_parameters())))

    begun(0, 7.0)
    _, of_worker_1 = begun(1, 1.0)
    of_worker_1.take(0)
    for trains in (False, True):
        model, of_worker_2 = begun(2, 1.0)
        of_worker_2.take(1)
        assert model.get_buffer("frozen").tolist() == [7.0] * 4
        if not trains:
            of_worker_1.begin()
