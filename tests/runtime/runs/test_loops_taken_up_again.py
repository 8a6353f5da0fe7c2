"""A loop of one's own is evaluated beside the training, leaves checkpoints, and goes on from one."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.checkpoint.folder_store import CHECKPOINTS, MODEL
from paceline.config import Config
from paceline.core.errors import ConfigError, PacelineError
from paceline.runtime.checkpointing.resume import open_at
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import MakeOptimizer, run_loops, toy_data, toy_model

DATA = toy_data()


EPOCHS, BATCH = 6, 9


EVERY = {"every": 0.001}
"""Seconds: a checkpoint whenever the evaluator looks, and one at the end."""


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def adadelta(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(parameters, lr=0.5)


def loop_of(epochs: int, seen: list[int] | None = None) -> Callable[[Pace, nn.Module], None]:
    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, BATCH, epochs=epochs):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            if seen is not None:
                seen.append(len(x))

    return loop


def one_epoch_at_a_time(pace: Pace, model: nn.Module) -> None:
    for _ in range(EPOCHS):
        loop_of(1)(pace, model)


def accuracy_of(model: nn.Module) -> float:
    x, y = DATA.tensors
    assert not model.training
    return float((model(x).argmax(1) == y).float().mean())


def vector(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


# ---- evaluate ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["bsp", "asp", "localsgd"])
def test_a_function_is_called_beside_the_training_and_its_figures_count(scheme: str, out: Path) -> None:
    models = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        models.append(model)
        return {"accuracy": accuracy_of(model), "loss": 0.5}

    summary, trained = run_loops(out, scheme, loop_of(EPOCHS), workers=2, evaluate=evaluate)
    told = [line for line in (out / "trace.jsonl").read_text().splitlines() if '"evaluated"' in line]
    assert len(told) == len(models) >= 1
    assert not any(model is own for model in models for own in trained.values()), "it has a model of its own"
    assert summary.test_accuracy == pytest.approx(accuracy_of(trained[0].eval()))
    assert json.loads(told[-1])["loss"] == 0.5
    assert (out / MODEL).exists()


def test_what_it_says_ends_the_run_at_the_target(out: Path) -> None:
    summary, _ = run_loops(
        out, "asp", loop_of(10_000), workers=2, evaluate=lambda _: 0.95, stop={"target_accuracy": 0.9}
    )
    assert summary.reason == "target accuracy"


def test_an_error_in_it_ends_the_run_with_its_words(out: Path) -> None:
    def evaluate(model: nn.Module) -> float:
        raise ValueError("no test set here")

    with pytest.raises(PacelineError, match="evaluator: ValueError: no test set here"):
        run_loops(out, "asp", loop_of(10_000), workers=1, evaluate=evaluate)


# ---- checkpoints -------------------------------------------------------------------------------------------------
def interrupted(out: Path, scheme: str, optimizer: MakeOptimizer, **more: Any) -> None:
    """A run that got half way, and of which its last checkpoint is left, as after kill -9 of everything."""
    run_loops(out, scheme, loop_of(EPOCHS // 2), optimizer=optimizer, checkpoint=EVERY, **more)
    (out / "summary.json").unlink()
    assert list((out / CHECKPOINTS).iterdir())


RUNS: list[tuple[str, int, MakeOptimizer]] = [
    ("bsp", 1, adam),
    ("bsp", 0, adam),
    ("bsp", 0, adadelta),
    ("bsp", 2, adadelta),
    ("localsgd", 1, adam),
    ("localsgd", 0, adadelta),
]


@pytest.mark.parametrize("loop", [loop_of(EPOCHS), one_epoch_at_a_time])
@pytest.mark.parametrize(("scheme", "servers", "optimizer"), RUNS)
def test_a_run_that_goes_on_ends_as_one_that_was_never_interrupted(
    scheme: str, servers: int, optimizer: MakeOptimizer, loop: Any, out: Path
) -> None:
    more: dict[str, Any] = {"workers": 2, "servers": servers}
    more |= {"tau": 5} if scheme == "localsgd" else {}
    _, wanted = run_loops(out / "whole", scheme, loop, optimizer=optimizer, **more)
    interrupted(out / "half", scheme, optimizer, **more)
    checkpoint = {**EVERY, "resume": "auto"}
    summary, found = run_loops(out / "half", scheme, loop, optimizer=optimizer, checkpoint=checkpoint, **more)
    assert summary.samples == EPOCHS * len(DATA)
    torch.testing.assert_close(vector(found[0]), vector(wanted[0]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("scheme", ["asp", "ssp", "esync"])
def test_samples_are_counted_once_where_workers_draw_them(scheme: str, out: Path) -> None:
    interrupted(out, scheme, adam, workers=3)
    seen: list[int] = []
    checkpoint = {**EVERY, "resume": "auto"}
    summary, _ = run_loops(out, scheme, loop_of(EPOCHS, seen), optimizer=adam, checkpoint=checkpoint, workers=3)
    assert sum(seen) == (EPOCHS - EPOCHS // 2) * len(DATA)
    assert summary.samples == EPOCHS * len(DATA)


class OneWeightEach(nn.Module):
    """Its gradient is 1 / b at each sample of a batch of b, and 0 elsewhere: the weights count who was trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(EACH))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return -self.weights[numbers].mean()


EACH = 60
NUMBERED = torch.utils.data.TensorDataset(torch.arange(EACH), torch.zeros(EACH))


def sgd_of_1(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [
        ("ssp", {"staleness": 9}),
        ("asp", {}),
        ("dcasgd", {}),
        ("asp", {"payload": "delta"}),
        ("hybrid", {"phases": "asp until 500 steps; ssp"}),
        ("esync", {}),
        ("esync", {"servers": 0}),
        ("easgd", {"tau": 2}),
        ("gosgd", {"servers": 0}),
    ],
)
def test_a_batch_that_was_under_way_is_trained_once(
    scheme: str, parameters: dict[str, Any], loaded: bool, out: Path
) -> None:
    """Worker 1 has drawn a batch that it never trains, while worker 0 trains later ones."""
    drawn, trained = threading.Event(), threading.Event()

    def batches(pace: Pace) -> Iterable[Any]:
        return pace.loader(NUMBERED, 5) if loaded else pace.batches(NUMBERED, 5, epochs=1)

    def interrupted(pace: Pace, model: nn.Module) -> None:
        if pace.rank == 0:
            assert drawn.wait(60.0)
        for step, (numbers, _) in enumerate(batches(pace)):
            if pace.rank == 1:
                drawn.set()
                assert trained.wait(60.0)
                return
            model(numbers).backward()
            pace.step()
            if step == 4:
                trained.set()
                return

    def whole(pace: Pace, model: nn.Module) -> None:
        for numbers, _ in batches(pace):
            model(numbers).backward()
            pace.step()

    more: dict[str, Any] = {"workers": 2, "make_model": OneWeightEach, "optimizer": sgd_of_1, **parameters}
    run_loops(out, scheme, interrupted, checkpoint=EVERY, **more)
    (out / "summary.json").unlink()
    start = open_at(Config(), str(max((out / CHECKPOINTS).iterdir())))
    assert (start.samples, start.facts["settled"]) == (25, True)
    summary, models = run_loops(out, scheme, whole, checkpoint={**EVERY, "resume": "auto"}, **more)
    assert summary.samples == EACH
    counts = vector(models[0])
    if scheme in ("esync", "easgd", "gosgd"):  # a sample's weight in the model is that of its worker
        assert counts.min() > 0.0
    else:
        torch.testing.assert_close(counts, counts.max().expand(EACH))


@pytest.mark.parametrize(
    ("scheme", "servers", "parameters"),
    [("bsp", 1, {}), ("bsp", 0, {}), ("localsgd", 1, {"tau": 2}), ("diloco", 0, {"h": 2})],
)
def test_of_the_share_of_one_that_had_left_each_sample_is_trained_once_in_an_epoch(
    scheme: str, servers: int, parameters: dict[str, Any], out: Path
) -> None:
    """Worker 1 leaves in its first epoch, and the others in their second one, with a part of what it left."""
    trained: Counter[int] = Counter()

    def loop_until(steps: dict[int, int]) -> Callable[[Pace, nn.Module], None]:
        def loop(pace: Pace, model: nn.Module) -> None:
            for epoch in range(3):
                for numbers, _ in pace.batches(NUMBERED, 5, epochs=1):
                    model(numbers).backward()
                    pace.step()
                    trained.update((numbers + epoch * EACH).tolist())
                    if pace.steps == steps.get(pace.rank):
                        return

        return loop

    more: dict[str, Any] = {"workers": 3, "servers": servers, "make_model": OneWeightEach, "optimizer": sgd_of_1}
    run_loops(out, scheme, loop_until({0: 6, 1: 2, 2: 6}), checkpoint=EVERY, **more, **parameters)
    (out / "summary.json").unlink()
    start = open_at(Config(), str(max((out / CHECKPOINTS).iterdir())))
    assert start.facts["moved"] is False, "it is known which samples those are"
    checkpoint = {**EVERY, "resume": "auto"}
    summary, _ = run_loops(out, scheme, loop_until({}), checkpoint=checkpoint, **more, **parameters)
    assert trained == Counter(range(3 * EACH))
    assert summary.samples == 3 * EACH


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_loader_had_drawn_ahead_is_trained_after_a_resume(workers: int, out: Path) -> None:
    trained: Counter[int] = Counter()

    def loop_until(steps: int) -> Callable[[Pace, nn.Module], None]:
        def loop(pace: Pace, model: nn.Module) -> None:
            for numbers, _ in pace.loader(NUMBERED, 5, num_workers=1):
                model(numbers).backward()
                pace.step()
                trained.update(numbers.tolist())
                if pace.steps == steps:
                    return

        return loop

    more: dict[str, Any] = {"workers": workers, "make_model": OneWeightEach, "optimizer": sgd_of_1}
    run_loops(out, "bsp", loop_until(2), checkpoint=EVERY, **more)
    (out / "summary.json").unlink()
    run_loops(out, "bsp", loop_until(0), checkpoint={**EVERY, "resume": "auto"}, **more)
    assert trained == Counter(range(EACH))


def test_another_number_of_workers_goes_on_with_weights_optimizer_and_samples(out: Path) -> None:
    interrupted(out, "bsp", adam, workers=2)
    seen: list[int] = []
    checkpoint = {**EVERY, "resume": "auto"}
    run_loops(out, "bsp", loop_of(EPOCHS, seen), optimizer=adam, checkpoint=checkpoint, workers=3)
    assert sum(seen) == (EPOCHS - EPOCHS // 2) * len(DATA)


def test_a_checkpoint_of_another_model_is_refused_by_name(out: Path) -> None:
    interrupted(out, "asp", adam, workers=1)

    (number, *_) = sorted((out / CHECKPOINTS).iterdir(), reverse=True)
    with pytest.raises(ConfigError, match=r"has no 3\.weight, which the model has"):
        open_at(Config(), str(number)).load_into(nn.Sequential(*toy_model().children(), nn.Linear(2, 2)))


def test_the_folder_of_a_run_that_has_none_yet_begins_anew(out: Path) -> None:
    interrupted(out, "asp", adam, workers=1)
    shutil.rmtree(out / CHECKPOINTS)
    summary, _ = run_loops(out, "asp", loop_of(2), workers=1, checkpoint={**EVERY, "resume": "auto"})
    assert summary.samples == 2 * len(DATA)
