"""LBFGS evaluates the model several times a step, by a closure: where workers make the steps it trains as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paceline
from paceline.core.errors import ConfigError
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model

LOCAL = [("localsgd", {"tau": 2}), ("esync", {}), ("postlocal", {}), ("gosgd", {})]
STEPS = 4


def lbfgs(model: nn.Module, line_search: str | None = None) -> torch.optim.LBFGS:
    return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn=line_search)


def loop(optimizer: torch.optim.Optimizer, model: nn.Module, *, clears: bool = True) -> tuple[list[float], int]:
    """Returns the losses, and how often the model was evaluated."""
    (x, y), evaluations = toy_data().tensors, 0

    def closure() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        if clears:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return [optimizer.step(closure).item() for _ in range(STEPS)], evaluations  # type: ignore[arg-type, union-attr]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("clears", [True, False])
@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize(("scheme", "options"), LOCAL)
def test_a_worker_trains_what_the_plain_loop_trains(
    scheme: str, options: dict[str, Any], line_search: str | None, clears: bool
) -> None:
    """With as many evaluations, and without zero_grad in the closure, too."""
    wanted, model = toy_model(), toy_model()
    losses, evaluations = loop(lbfgs(wanted, line_search), wanted)
    assert evaluations > 2 * STEPS
    with paceline.join(model, lbfgs(model, line_search), scheme=scheme, **options) as pace:
        found, number = loop(pace.optimizer, model, clears=clears)
        assert (pace.steps, number) == (STEPS, evaluations)
        assert pace._worker.counts.samples == STEPS * len(toy_data()), "however often they are looked at"
    assert found == pytest.approx(losses, rel=1e-4)
    for p, q in zip(model.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_two_workers_end_with_one_model(out: Path) -> None:
    def shared(pace: Pace, model: nn.Module) -> None:
        loop(pace.optimizer, model)

    options = {"optimizer": lambda parameters: torch.optim.LBFGS(parameters, lr=0.5, max_iter=5), "tau": 2}
    _, models = run_loops(out, "localsgd", shared, workers=2, servers=0, **options)
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(p, q)
    x, y = toy_data().tensors
    assert nn.functional.cross_entropy(models[0](x), y) < 0.1


@pytest.mark.usefixtures("alone")
def test_a_step_without_a_closure_and_a_state_are_refused_with_the_way_out() -> None:
    model = toy_model()
    x, y = toy_data().tensors
    pace = paceline.join(model, lbfgs(model), scheme="esync")
    loop(pace.optimizer, model)
    with pytest.raises(ConfigError, match=r"save model.state_dict\(\) and optimizer.state_dict\(\)"):
        pace.state_dict()
    nn.functional.cross_entropy(model(x), y).backward()
    with pytest.raises(ConfigError, match=r"call pace.optimizer.step\(closure\) in place of pace.step\(\)"):
        pace.step(len(x))
    pace.abandon("as the error would")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["bsp", "asp", "lbbsp", "adpsgd", "tiers"])
def test_schemes_that_take_one_gradient_a_step_refuse_it(scheme: str) -> None:
    model = toy_model()
    with pytest.raises(ConfigError, match="take a scheme with local steps"):
        paceline.join(model, lbfgs(model), scheme=scheme)


@pytest.mark.usefixtures("alone")
def test_it_is_refused_as_one_of_several_and_so_is_a_class_of_it() -> None:
    class Own(torch.optim.LBFGS):
        pass

    models = {name: toy_model() for name in "DG"}
    several = {"D": lbfgs(models["D"]), "G": torch.optim.SGD(models["G"].parameters(), lr=0.1)}
    with pytest.raises(ConfigError, match="with several models take an optimizer that needs one gradient a step"):
        paceline.join(dict(models), several, scheme="esync")
    with pytest.raises(ConfigError, match="Own is a class of LBFGS"):
        paceline.join(models["D"], Own(models["D"].parameters()), scheme="esync")
