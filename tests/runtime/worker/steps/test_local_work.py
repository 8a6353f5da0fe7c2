"""What a scheme may ask of a step: several batches, a size, a memory; in one process and in runs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from paceline.core.effects import KEEP, RESET, Compute, Effect, Mean, Train
from paceline.core.role import Role
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.scheme import _registry as registered
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps.local_work import LocalWork
from tests.runtime.own_loops import plain_steps, run_loops, toy_data, toy_model

MOMENTUM = OptimizerRecipe(lr=0.1, momentum=0.9)
ADAM = OptimizerRecipe(name="adam", lr=0.01)
WAYS: dict[str, Callable[[nn.Module], torch.optim.Optimizer] | None] = {
    "recipe": None,
    "momentum": lambda module: torch.optim.SGD(module.parameters(), 0.1, momentum=0.9),
    "adam": lambda module: torch.optim.Adam(module.parameters(), 0.01),
}


class Bench:
    """A model and its `LocalWork`, without a run."""

    def __init__(self, way: str = "recipe", recipe: OptimizerRecipe = MOMENTUM) -> None:
        make = WAYS[way]
        self.module = toy_model()
        self.flat = FlatModel(self.module)
        optimizer = None if make is None else make(self.module)
        self.steps = LocalWork(self.flat, Recipe(scheme="bsp", optimizer=recipe), optimizer)
        self.w0 = self.flat.weights()

    def do(self, wanted: Compute | Train, *sizes: int, at: int = 0) -> Any:
        """Batches of these sizes, one after the other from sample `at` on."""
        x, y = toy_data().tensors
        self.steps.begin(wanted)
        result = None
        for size in sizes:
            assert result is None
            self.flat.zero_grad()
            nn.functional.cross_entropy(self.module(x[at : at + size]), y[at : at + size]).backward()
            self.steps.apply(0)
            result = self.steps.done(size, 0.5)
            at += size
        return result


def same(a: Flat, b: Flat) -> bool:
    return torch.equal(a.value(), b.value())


@pytest.mark.parametrize("sizes", [(8, 8, 8), (8, 4, 1, 11), (24,)])
def test_the_gradient_over_several_batches_is_that_of_one_with_all_their_samples(sizes: tuple[int, ...]) -> None:
    one, many = Bench(), Bench()
    whole = one.do(Compute(one.w0), 24)
    parts = many.do(Compute(many.w0, steps=len(sizes)), *sizes)
    torch.testing.assert_close(parts.g.value(), whole.g.value())
    assert (parts.samples, parts.seconds) == (24, 0.5 * len(sizes))


def test_batches_without_a_sample_have_a_gradient_of_zero() -> None:
    """As batches of text in which no token has a label."""
    bench = Bench()
    bench.steps.begin(Compute(bench.w0, steps=2))
    for _ in range(2):
        bench.module(toy_data().tensors[0][:3]).sum().backward()
        result = bench.steps.done(0, 0.5)
    assert result is not None
    assert result.samples == 0
    assert not result.g.value().any()  # type: ignore[union-attr]


def test_each_piece_of_work_starts_its_sum_anew() -> None:
    bench = Bench()
    bench.do(Compute(bench.w0, steps=2), 8, 8)
    again = bench.do(Compute(bench.w0, steps=2), 4, 4, at=16)
    torch.testing.assert_close(again.g.value(), Bench().do(Compute(bench.w0), 8, at=16).g.value())
    assert again.samples == 8


@pytest.mark.parametrize("way", WAYS)
def test_a_reset_memory_is_that_of_a_fresh_optimizer(way: str) -> None:
    used, fresh = Bench(way), Bench(way)
    used.do(Train(used.w0, 3), 8, 8, 8)
    kept = used.do(Train(used.w0, 2), 8, 8)
    reset = used.do(Train(used.w0, 2, memory=RESET), 8, 8)
    first = fresh.do(Train(fresh.w0, 2), 8, 8)
    assert same(reset.x, first.x)
    assert not same(kept.x, first.x)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("recipe", [MOMENTUM, ADAM])
def test_the_average_of_one_memory_is_what_was_kept(way: str, recipe: OptimizerRecipe) -> None:
    kept, averaged = Bench(way, recipe), Bench(way, recipe)
    a = kept.do(Train(kept.w0, 3), 8, 8, 8)
    b = averaged.do(Train(averaged.w0, 3, show_memory=True), 8, 8, 8)
    assert same(a.x, b.x)
    averaged.do(Train(averaged.w0, 1), 8)  # something else meanwhile
    mean = b.memory * 3.0 * (1 / 3.0)
    again = averaged.do(Train(b.x, 2, memory=mean), 8, 8, at=24)
    assert same(kept.do(Train(a.x, 2, memory=KEEP), 8, 8, at=24).x, again.x)
    assert a.memory is None


def test_what_is_no_memory_is_refused() -> None:
    bench = Bench()
    with pytest.raises(TypeError, match="'mean' to remember"):
        bench.do(Train(bench.w0, 1, memory="mean"), 8)


# ---- in runs ---------------------------------------------------------------------------------------------
@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two schemes for these tests only: all-reduced gradients of what is asked for, and local steps."""
    monkeypatch.setattr(registered, "_classes", dict(registered._classes))
    paper = Paper(key="none", authors="Nobody", title="None", venue="None", year=2026)

    @scheme("probe", summary="averages gradients of several batches", paper=paper)
    class Probe(Scheme):
        steps: int = parameter(1, "batches")
        samples: int = parameter(0, "in a batch")
        needs_mean: ClassVar[bool] = True

        class Worker(Role):
            t = 0

            def run(self) -> Generator[Effect, Any, None]:
                asked = self.scheme
                while True:
                    c = yield Compute(self.w, asked.steps, asked.samples or None)
                    mean = yield Mean(c.g, self.workers, tag=f"probe/{self.t}", weight=float(c.samples))
                    self.w, self.t = self.update(self.w, mean.v, int(mean.weight)), self.t + 1

    @scheme("local", summary="averages weights, and what the optimizers remember", paper=paper)
    class Local(Scheme):
        memory: str = parameter(KEEP, "keep, reset or average")
        needs_mean: ClassVar[bool] = True
        trains_locally: ClassVar[bool] = True

        class Worker(Role):
            t = 0
            memory: Any = KEEP

            def run(self) -> Generator[Effect, Any, None]:
                average = self.scheme.memory == "average"
                while True:
                    memory = self.memory if average else self.scheme.memory
                    t = yield Train(self.w, 2, memory=memory, show_memory=average)
                    mean = yield Mean(t.x, self.workers, tag=f"local/{self.t}", weight=float(t.samples))
                    if average:
                        self.memory = (yield Mean(t.memory, self.workers, tag=f"memory/{self.t}")).v
                    self.w, self.t = mean.v, self.t + 1


def trained(
    out: Path,
    name: str,
    *,
    batch_size: int = 8,
    workers: int = 2,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    servers: int = 1,
    **parameters: Any,
) -> torch.Tensor:
    data = toy_data(96)
    make = {} if optimizer is None else {"optimizer": optimizer}

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, data, batch_size=batch_size, epochs=4)

    _, models = run_loops(out, name, loop, workers=workers, servers=servers, **make, **parameters)
    return nn.utils.parameters_to_vector(models[0].parameters()).detach()


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize("servers", [1, 2])
def test_in_a_run_several_batches_are_one_batch_of_several_times_the_size(out: Path, servers: int) -> None:
    whole = trained(out, "probe", batch_size=24, servers=servers)
    torch.testing.assert_close(trained(out, "probe", batch_size=8, steps=3, servers=servers), whole)
    torch.testing.assert_close(trained(out, "probe", batch_size=8, samples=24, servers=servers), whole)
    assert not torch.allclose(trained(out, "probe", batch_size=8, servers=servers), whole)


def with_momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, 0.01)


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize("make", [with_momentum, adam])
@pytest.mark.parametrize("servers", [1, 3])
def test_in_a_run_of_one_worker_averaging_the_memory_is_keeping_it(
    out: Path, make: Callable[[Any], torch.optim.Optimizer], servers: int
) -> None:
    def run(memory: str) -> torch.Tensor:
        return trained(out, "local", workers=1, servers=servers, optimizer=make, memory=memory)

    kept = run(KEEP)
    assert torch.equal(run("average"), kept)
    assert not torch.allclose(run(RESET), kept)


@pytest.mark.usefixtures("probe")
def test_in_a_run_of_two_the_averaged_memory_is_the_same_on_both(out: Path) -> None:
    """With the same samples on both, what is averaged is equal, so keeping must give the same."""

    def run(memory: str) -> torch.Tensor:
        x, y = toy_data(16).tensors

        def loop(pace: Pace, model: nn.Module) -> None:
            for _ in range(12):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step(samples=16)

        _, models = run_loops(out, "local", loop, workers=2, servers=2, optimizer=adam, memory=memory)
        return nn.utils.parameters_to_vector(models[1].parameters()).detach()

    torch.testing.assert_close(run("average"), run(KEEP))
