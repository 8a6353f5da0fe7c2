"""Optimizers that train other weights than they evaluate: the final model is that of `eval()`, or `join` refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError
from paceline.engine.model.several_models import together
from paceline.engine.optim.evaluated_weights import evaluates_others, show_evaluated, show_trained
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model
from tests.runtime.own_optimizers import ScheduleFree
from tests.runtime.worker.test_loop_state import through_a_file

X, Y = toy_data(96).tensors
STEPS, SIZE = 8, 6


def batch(step: int, rank: int, workers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A worker's own six samples of a step, or those of two workers."""
    at = 2 * SIZE * step
    rows = slice(at + SIZE * rank, at + SIZE * (rank + 1)) if workers > 1 else slice(at, at + 2 * SIZE)
    return X[rows], Y[rows]


def made(model: nn.Module) -> ScheduleFree:
    optimizer = ScheduleFree(model.parameters())
    optimizer.train()
    return optimizer


def plain(model: nn.Module, optimizer: ScheduleFree, steps: range = range(STEPS)) -> None:
    for step in steps:
        optimizer.zero_grad()
        x, y = batch(step, 0, 1)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def trained() -> tuple[nn.Module, torch.Tensor]:
    """Returns the plain loop's model as `eval()` gives it, and the weights that it trains."""
    model = toy_model()
    optimizer = made(model)
    plain(model, optimizer)
    at_y = vector(model)
    optimizer.eval()
    return model, at_y


def vector(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def test_the_weights_are_turned_once_and_back() -> None:
    model = toy_model()
    optimizer = made(model)
    plain(model, optimizer)
    other = nn.Linear(1, 1)
    of_loop = together({"D": model, "G": other}, {"D": optimizer, "G": torch.optim.SGD(other.parameters(), 0.1)})[1]
    assert evaluates_others(of_loop)
    assert not evaluates_others(torch.optim.SGD(model.parameters(), 0.1))
    assert not evaluates_others(None)
    before = vector(model)
    assert not show_trained(of_loop, lambda: [vector(model)])
    assert torch.equal(vector(model), before)
    show_evaluated(of_loop)
    assert not torch.allclose(vector(model), before, atol=1e-4)
    assert show_trained(of_loop, lambda: [vector(model)])
    torch.testing.assert_close(vector(model), before)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("evaluated", ["before close", "after close"])
def test_alone_the_final_model_is_that_of_the_plain_loop(evaluated: str) -> None:
    model, (wanted, _) = toy_model(), trained()
    optimizer = made(model)
    pace = paceline.join(model, optimizer, scheme="bsp")
    for step in range(STEPS):
        x, y = batch(step, 0, 1)
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step(len(x))
        if step == 3:  # an evaluation
            optimizer.eval()
            optimizer.train()
    if evaluated == "before close":
        optimizer.eval()
    pace.close()
    optimizer.eval()
    torch.testing.assert_close(vector(model), vector(wanted))


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("evaluated", ["before close", "after close"])
def test_two_workers_end_with_that_of_both_batches_in_one_process(servers: int, evaluated: str, tmp_path: Path) -> None:
    optimizers: list[ScheduleFree] = []

    def make(parameters: Any) -> torch.optim.Optimizer:
        optimizer = ScheduleFree(parameters)
        optimizer.train()
        optimizers.append(optimizer)
        return optimizer

    def loop(pace: Pace, model: nn.Module) -> None:
        optimizer = pace.optimizer
        for step in range(STEPS):
            x, y = batch(step, pace.rank, 2)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(len(x))
            if step == 3:
                with pace.shared_model():
                    optimizer.eval()
                    assert not torch.allclose(vector(model), vector(toy_model()))
                optimizer.train()
        if evaluated == "before close":
            optimizer.eval()

    _, models = run_loops(tmp_path, "bsp", loop, workers=2, servers=servers, optimizer=make)
    wanted, at_y = trained()
    if evaluated == "after close":
        torch.testing.assert_close(vector(models[0]), at_y)
        for optimizer in optimizers:
            optimizer.eval()
    for model in models.values():
        torch.testing.assert_close(vector(model), vector(wanted))


@pytest.mark.usefixtures("alone")
def test_the_model_that_is_lent_for_an_evaluation_is_that_of_eval() -> None:
    model, (wanted, at_y) = toy_model(), trained()
    optimizer = made(model)
    pace = paceline.join(model, optimizer, scheme="bsp")
    for step in range(STEPS):
        x, y = batch(step, 0, 1)
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step(len(x))
    with pace.shared_model() as lent:
        optimizer.eval()
        torch.testing.assert_close(vector(lent), vector(wanted))
    optimizer.train()
    torch.testing.assert_close(vector(model), at_y)
    pace.close()


@pytest.mark.usefixtures("alone")
def test_what_was_saved_in_eval_mode_goes_on() -> None:
    """A script saves the weights to evaluate, loads them, and calls `train()` after `join`, perhaps."""
    model, (wanted, _) = toy_model(), trained()
    optimizer = made(model)
    plain(model, optimizer, range(4))
    optimizer.eval()
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    model = toy_model()
    model.load_state_dict(saved[0])
    optimizer = ScheduleFree(model.parameters())
    optimizer.load_state_dict(saved[1])
    pace = paceline.join(model, optimizer, scheme="bsp")
    optimizer.train()
    for step in range(4, STEPS):
        x, y = batch(step, 0, 1)
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step(len(x))
    optimizer.eval()
    pace.close()
    torch.testing.assert_close(vector(model), vector(wanted))


@pytest.mark.usefixtures("alone")
def test_a_state_of_the_loop_has_what_the_optimizer_counts_in_its_groups() -> None:
    model, (wanted, _) = toy_model(), trained()
    state = None
    for steps in (range(4), range(4, STEPS)):
        model = toy_model()
        optimizer = ScheduleFree(model.parameters())
        pace = paceline.join(model, optimizer, scheme="bsp", state=state)
        for step in steps:
            x, y = batch(step, 0, 1)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(len(x))
        state = through_a_file(pace.state_dict())
        optimizer.eval()
        pace.close()
    torch.testing.assert_close(vector(model), vector(wanted))


@pytest.mark.usefixtures("alone")
def test_gradients_of_the_weights_to_evaluate_are_an_error() -> None:
    model = toy_model()
    optimizer = made(model)
    pace = paceline.join(model, optimizer, scheme="bsp")
    for step in range(3):
        x, y = batch(step, 0, 1)
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step(len(x))
    optimizer.eval()
    nn.functional.cross_entropy(model(x), y).backward()
    with pytest.raises(ConfigError, match=r"call optimizer\.train\(\) before the next forward pass"):
        pace.step(len(x))
    pace.abandon("as the error would")


BY_PATH = "tests.runtime.own_optimizers:schedule_free"


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["asp", "ssp", "esync", "localsgd", "diloco", "easgd", "sgp"])
@pytest.mark.parametrize("given", [made, lambda _: BY_PATH], ids=["an object", "a path"])
def test_it_is_refused_where_workers_differ_or_servers_make_the_steps(scheme: str, given: Callable[..., Any]) -> None:
    model = toy_model()
    with pytest.raises(
        ConfigError, match=rf"ScheduleFree evaluates other weights .* under {scheme} .* take bsp"
    ) as error:
        paceline.join(model, given(model), scheme=scheme)
    assert "\n" not in str(error.value)
    paceline.join(model, BY_PATH, scheme="bsp").close()
