"""`pace.optimizer` in place of the optimizer, and torch's schedulers by the samples of all workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import paceline
from paceline.core.errors import ConfigError
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model
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


OVERFLOWS = torch.inf


def scaled_loop(optimizer: torch.optim.Optimizer, model: nn.Module, *, clears: bool) -> list[float]:
    """Steps that a gradient scaler skips until its scale has come down; returns its scales."""
    scaler, scales = torch.amp.GradScaler("cpu", init_scale=2.0**80), list[float]()
    for x, y in shares_of(1, 2)[0]:
        if clears:
            optimizer.zero_grad()
        scale = scaler.get_scale()
        loss = nn.functional.cross_entropy(model(x), y)
        (scaler.scale(loss) * (OVERFLOWS if scale > 2.0**76 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scale)
    return scales


def fused(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, fused=True)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("make", [adamw, fused])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_that_a_scaler_skips_clears_the_gradients(
    scheme: str, make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
) -> None:
    """zero_grad is left out: on top of infinity every later gradient would be infinite, and every step skipped."""
    wanted, model = toy_model(), toy_model()
    scales = scaled_loop(make(wanted.parameters()), wanted, clears=True)
    assert min(scales[:-1]) == 2.0**76, "four steps are skipped, and no more"
    with paceline.join(model, make(model.parameters()), scheme=scheme) as pace:
        assert scaled_loop(pace.optimizer, model, clears=False) == scales
        assert pace.steps == len(scales) - 4
    assert_same(model, wanted)


@pytest.mark.usefixtures("alone")
def test_of_several_models_a_skipped_step_clears_the_gradients_of_all() -> None:
    models = {name: toy_model() for name in "DG"}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.1) for name, model in models.items()}
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    x, y = shares_of(1, 2)[0][0]
    with paceline.join(dict(models), dict(optimizers), scheme="bsp") as pace:
        for factor in (torch.inf, 1.0):
            losses = [nn.functional.cross_entropy(model(x), y) for model in models.values()]
            scaler.scale(sum(losses) * factor).backward()
            scaler.step(pace.optimizers["D"])
            scaler.update()
            assert pace.steps == int(factor == 1.0)
            gradients = [p.grad for model in models.values() for p in model.parameters()]
            assert not any(grad is not None and grad.any() for grad in gradients)


def test_one_of_two_workers_whose_scaler_skips_steps_trains_on_with_the_other(out: Path) -> None:
    steps: dict[int, int] = {}

    def loop(pace: Pace, model: nn.Module) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        for at, (x, y) in enumerate(pace.batches(toy_data(), 5, partition="uniform")):
            loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss * torch.inf if pace.rank == 1 and at < 3 else loss).backward()
            scaler.step(pace.optimizer)
            scaler.update()
        steps[pace.rank] = pace.steps

    run_loops(out, "bsp", loop, workers=2)
    assert steps == {0: 9, 1: 6}


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
