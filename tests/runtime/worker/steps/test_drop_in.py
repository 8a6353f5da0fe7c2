"""`pace.optimizer` in place of the optimizer, and torch's schedulers by the samples of all workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

import paceline
from paceline.core.errors import ConfigError
from tests.runtime.own_loops import toy_data, toy_model
from tests.runtime.runs.test_trained_and_rest import (
    assert_same,
    shares_of,
)

SCHEMES = ["bsp", "asp", "esync"]


Step = Callable[[torch.optim.Optimizer, nn.Module, Tensor, Tensor, int], None]


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    every = list(parameters)
    return torch.optim.AdamW([{"params": every[::2]}, {"params": every[1::2], "weight_decay": 0.5}], lr=0.02)


def by_closure(optimizer: torch.optim.Optimizer, model: nn.Module, x: Tensor, y: Tensor, at: int) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    assert isinstance(optimizer.step(closure), Tensor)  # type: ignore[arg-type]


def scaled(scaler: torch.amp.GradScaler, finite_at: Callable[[int], bool]) -> Step:
    """A loop with a gradient scaler; some of its gradients overflow."""

    def step(optimizer: torch.optim.Optimizer, model: nn.Module, x: Tensor, y: Tensor, at: int) -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss if finite_at(at) else loss * torch.inf).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()

    return step


def makes_step(kind: str) -> Step:
    if kind == "closure":
        return by_closure
    return scaled(torch.amp.GradScaler("cpu", init_scale=64.0), lambda at: at % 5 != 2)


def loop(optimizer: torch.optim.Optimizer, model: nn.Module, step: Step) -> None:
    for at, (x, y) in enumerate(shares_of(1, 2)[0]):
        step(optimizer, model, x, y, at)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", ["closure", "scaler"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_framework_that_steps_the_optimizer_trains_what_it_does_alone(scheme: str, kind: str) -> None:
    wanted, model = toy_model(), toy_model()
    loop(adamw(wanted.parameters()), wanted, makes_step(kind))
    with paceline.join(model, adamw(model.parameters()), scheme=scheme) as pace:
        loop(pace.optimizer, model, makes_step(kind))
    assert_same(model, wanted)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("cleared", ["before the next backward", "after the step"])
def test_a_step_that_a_scaler_skips_leaves_its_samples_uncounted(cleared: str) -> None:
    model = toy_model()
    with paceline.join(model, adamw(model.parameters()), scheme="asp") as pace:
        step = makes_step("scaler")  # skips those at 2 and 7, and clears gradients first
        for at, (x, y) in enumerate(pace.batches(toy_data(), 10)):
            step(pace.optimizer, model, x, y, at)
            if cleared == "after the step":
                pace.optimizer.zero_grad()
        assert (pace.steps, pace._worker.counts.samples) == (7, 70)


@pytest.mark.usefixtures("alone")
def test_a_batch_counts_where_the_loop_computes_its_gradient_anew() -> None:
    """As sharpness-aware minimisation does: of the first gradient it takes the direction only."""
    model = toy_model()
    with paceline.join(model, adamw(model.parameters()), scheme="asp") as pace:
        for x, y in pace.batches(toy_data(), 10):
            for _ in range(2):
                pace.optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
            pace.optimizer.step()
        assert (pace.steps, pace._worker.counts.samples) == (9, 90)


@pytest.mark.usefixtures("alone")
def test_it_is_the_optimizer_in_all_but_its_step() -> None:
    model, calls = toy_model(), list[str]()
    original = adamw(model.parameters())
    with paceline.join(model, original, scheme="bsp") as pace:
        optimizer = pace.optimizer
        assert isinstance(optimizer, torch.optim.Optimizer)
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        x, y = shares_of(1, 1)[0][0]
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        assert (pace.steps, calls) == (1, ["after"])
        assert optimizer.param_groups is original.param_groups
        assert optimizer.defaults is original.defaults
        kept = optimizer.state_dict()
        assert len(kept["state"]) == 4, "alone under bsp it is the worker that makes the steps"
        kept["param_groups"][1]["lr"] = 0.25
        optimizer.load_state_dict(kept)
        assert original.param_groups[1]["lr"] == 0.25
        assert "AdamW" in repr(optimizer)
        with pytest.raises(ConfigError, match="would update the model twice"):
            original.step()
