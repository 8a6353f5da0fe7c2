"""How many samples a step has in a loop over a DataLoader of its own, where nobody gives their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

import paceline
from paceline.core.errors import ConfigError
from paceline.runtime.supervisor.supervisor import RunFailed
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_sgd, run_loops, toy_data, toy_model

SCHEMES = ["asp", "bsp", "esync", "lbbsp", "localsgd"]
BATCH = {0: 48, 1: 16}
"""By rank: workers that are not alike take batches that are not alike."""
STEPS = 6
DATA = toy_data(400)

Step = Callable[[Pace], Any]
STEP: dict[str, Step] = {
    "pace.step()": lambda pace: pace.step(),
    "pace.optimizer.step()": lambda pace: pace.optimizer.step(),
}


def batches_of(rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A DataLoader of the worker's own, over data of its own."""
    data = Subset(DATA, range(rank * 200, rank * 200 + 200))
    while True:
        yield from DataLoader(data, BATCH[rank], drop_last=True)


def trains(step: Step, steps: int = STEPS) -> Callable[[Pace, nn.Module], None]:
    def loop(pace: Pace, model: nn.Module) -> None:
        for (x, y), _ in zip(batches_of(pace.rank), range(steps), strict=False):
            if pace.over:
                break
            nn.functional.cross_entropy(model(x), y).backward()
            step(pace)

    return loop


def in_one_process(loss_of: Callable[[nn.Module, Tensor, Tensor], Tensor], steps: int = STEPS) -> nn.Module:
    """The plain loop, with the batches of both workers in one."""
    model = toy_model()
    optimizer = plain_sgd(model.parameters())
    for first, second, _ in zip(batches_of(0), batches_of(1), range(steps), strict=False):
        optimizer.zero_grad()
        x, y = (torch.cat(pair) for pair in zip(first, second, strict=True))
        loss_of(model, x, y).backward()
        optimizer.step()
    return model


def mean_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y)


def assert_same(model: nn.Module, other: nn.Module) -> None:
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0.0, atol=1e-6)


# ---- laws --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("servers", [0, 1, 2])
@pytest.mark.parametrize("step", STEP)
def test_two_workers_under_bsp_train_what_one_process_with_both_batches_would(
    out: Path, step: str, servers: int
) -> None:
    _, models = run_loops(out, "bsp", trains(STEP[step]), workers=2, servers=servers)
    for model in models.values():
        assert_same(model, in_one_process(mean_loss))


@pytest.mark.parametrize("step", STEP)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_samples_counted_are_those_that_were_trained(out: Path, scheme: str, step: str) -> None:
    summary, _ = run_loops(out, scheme, trains(STEP[step], steps=8), workers=2)
    assert [worker.samples for worker in summary.workers] == [8 * 48, 8 * 16]
    assert summary.samples == 8 * 64


@pytest.mark.parametrize("step", STEP)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_that_samples_end_trains_so_many(out: Path, scheme: str, step: str) -> None:
    """Nobody is told beforehand: it goes beyond by what all have under way, which is a round in lock-step."""
    parameters = {"tau": 2} if scheme == "localsgd" else {}
    summary, _ = run_loops(out, scheme, trains(STEP[step], 10_000), workers=2, stop={"samples": 640}, **parameters)
    counted = [BATCH[worker.rank] * worker.steps for worker in summary.workers]
    assert summary.samples == sum(counted)
    if scheme in ("bsp", "lbbsp"):
        assert counted == [480, 160]
    elif scheme == "localsgd":
        assert 640 <= summary.samples <= 640 + 2 * 64
    else:
        assert summary.samples >= 640


def test_a_schedule_goes_by_them(out: Path) -> None:
    rates = list[float]()

    def loop(pace: Pace, model: nn.Module) -> None:
        optimizer = pace.optimizer
        pace.scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5), every=64)
        trains(STEP["pace.step()"], 4)(pace, model)
        if pace.rank == 0:
            rates.append(optimizer.param_groups[0]["lr"])

    run_loops(out, "bsp", loop, workers=2)
    assert rates == [0.1 * 0.5**3], "that of the fourth step"


def test_micro_batches_of_a_step_count_together(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for at, ((x, y), _) in enumerate(zip(batches_of(pace.rank), range(6), strict=False), start=1):
            nn.functional.cross_entropy(model(x), y).backward()
            if at % 3 == 0:
                pace.step()

    summary, _ = run_loops(out, "bsp", loop, workers=2)
    assert [(worker.steps, worker.samples) for worker in summary.workers] == [(2, 288), (2, 96)]


def test_a_batch_that_is_skipped_does_not_count(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for at, ((x, y), _) in enumerate(zip(batches_of(pace.rank), range(4), strict=False)):
            loss = nn.functional.cross_entropy(model(x[: 10 + at]), y[: 10 + at])
            if pace.rank == 1 and at == 3:
                continue
            if pace.rank == 1 and at == 0:
                loss.backward()
                pace.optimizer.zero_grad()
                continue
            loss.backward()
            pace.step()

    summary, _ = run_loops(out, "asp", loop, workers=2)
    assert [worker.samples for worker in summary.workers] == [10 + 11 + 12 + 13, 11 + 12]


def test_an_optimizer_that_evaluates_the_model_again_counts_a_batch_once(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for (x, y), _ in zip(batches_of(pace.rank), range(3), strict=False):

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                pace.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                return loss

            pace.optimizer.step(closure)

    def lbfgs(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(parameters, max_iter=4)

    summary, _ = run_loops(out, "localsgd", loop, workers=2, optimizer=lbfgs)
    assert [worker.samples for worker in summary.workers] == [3 * 48, 3 * 16]


def test_several_models_count_a_batch_once(out: Path) -> None:
    """The step of each is counted; the worker has trained as many as the model that has trained most."""

    def made() -> nn.Module:
        return nn.ModuleDict({"D": nn.Linear(6, 1), "G": nn.Linear(2, 6)})

    def loop(pace: Pace, model: Any) -> None:
        for (x, _), _ in zip(batches_of(pace.rank), range(3), strict=False):
            fake = model["G"](torch.ones(len(x), 2))
            (model["D"](x).mean() - model["D"](fake.detach()).mean()).backward()
            pace.step()
            model["D"](fake).mean().backward()
            pace.step()

    summary, _ = run_loops(out, "asp", loop, workers=2, make_model=made)
    assert [(worker.steps, worker.samples) for worker in summary.workers] == [(6, 6 * 48), (6, 6 * 16)]


# ---- who says it -------------------------------------------------------------------------------------------------
def test_what_the_loop_says_wins(out: Path) -> None:
    summary, _ = run_loops(out, "asp", trains(lambda pace: pace.step(5), 4), workers=2)
    assert [worker.samples for worker in summary.workers] == [20, 20]


def test_what_the_data_side_says_comes_before_calls_of_the_model(out: Path) -> None:
    """Here the loop trains on three samples of each batch of eight; then on batches of its own."""

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, 8, epochs=None):
            nn.functional.cross_entropy(model(x[:3]), y[:3]).backward()
            pace.step()
            if pace.steps == 4:
                break
        assert pace._worker.counts.samples == 32
        trains(STEP["pace.step()"], 2)(pace, model)

    summary, _ = run_loops(out, "asp", loop, workers=2)
    assert [worker.samples for worker in summary.workers] == [32 + 96, 32 + 32]


def test_worker_0_prints_once_how_samples_are_counted(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_loops(out, "asp", trains(STEP["pace.step()"]), workers=2)
    assert capfd.readouterr().err.splitlines() == [
        "paceline: worker 0 counts 48 samples a step: the first dimension of the input of Sequential; "
        "pace.step(n) or join(samples_of=...) overrides"
    ]


@pytest.mark.parametrize("way", ["given", "batches", "samples_of"])
def test_it_prints_nothing_where_the_loop_says_it(out: Path, way: str, capfd: pytest.CaptureFixture[str]) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        if way == "batches":
            for x, y in pace.batches(DATA, 40):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()
        else:
            trains(lambda pace: pace.step(7) if way == "given" else pace.step())(pace, model)

    run_loops(out, "asp", loop, workers=2, samples_of=len if way == "samples_of" else None)
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("alone")
def test_a_script_alone_is_counted_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    model = toy_model()
    with paceline.join(model, plain_sgd(model.parameters()), scheme="bsp") as pace:
        trains(STEP["pace.step()"])(pace, model)
        assert pace.total_samples == STEPS * 48
    assert capfd.readouterr().err == ""


# ---- where nobody knows ------------------------------------------------------------------------------------------
class ByMethod(nn.Module):
    """A model of which the loop calls a method that torch does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(6))

    def loss(self, x: Tensor) -> Tensor:
        return (x @ self.w).square().mean()

    def forward(self) -> Tensor:
        return self.w.square().sum()


def by_method(pace: Pace, model: Any) -> None:
    for (x, _), _ in zip(batches_of(pace.rank), range(3), strict=False):
        model.loss(x).backward()
        pace.step()


def without_input(pace: Pace, model: Any) -> None:
    for _ in range(3):
        model().backward()
        pace.step()


@pytest.mark.parametrize(
    ("loop", "why"),
    [(by_method, r"ByMethod was not called"), (without_input, r"ByMethod was called without a tensor")],
)
def test_where_nobody_knows_and_others_go_by_it_the_step_is_refused(
    out: Path, loop: Callable[[Pace, nn.Module], None], why: str
) -> None:
    with pytest.raises(RunFailed, match=why) as caught:
        run_loops(out, "bsp", loop, workers=2, make_model=ByMethod)
    assert "call pace.step(n) with their number" in str(caught.value)


def test_so_it_is_alone_where_a_rule_or_a_schedule_goes_by_samples(out: Path) -> None:
    with pytest.raises(RunFailed, match="does not know how many samples"):
        run_loops(out / "rule", "bsp", by_method, workers=1, make_model=ByMethod, stop={"samples": 50})

    def scheduled(pace: Pace, model: nn.Module) -> None:
        pace.scheduler(torch.optim.lr_scheduler.StepLR(pace.optimizer, 1), every=8)
        by_method(pace, model)

    with pytest.raises(RunFailed, match="does not know how many samples"):
        run_loops(out / "schedule", "bsp", scheduled, workers=1, make_model=ByMethod)


@pytest.mark.usefixtures("alone")
def test_alone_such_a_step_counts_as_one_sample() -> None:
    model = ByMethod()
    with paceline.join(model, plain_sgd(model.parameters()), scheme="bsp") as pace:
        by_method(pace, model)
        assert pace.total_samples == 3


# ---- tokens ------------------------------------------------------------------------------------------------------
IGNORED = -100


def tokens_of(x: Tensor, labels: Tensor) -> Tensor:
    return (labels != IGNORED).sum()


class Labelled(nn.Module):
    """Returns the mean loss of the tokens that have a label, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = toy_model()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(self.inner(x).flatten(0, 1), labels.flatten())}


def sentences_of(rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """As many sentences in each batch, and more tokens with a label on worker 0 than on worker 1."""
    generator = torch.Generator().manual_seed(rank)
    while True:
        x = torch.randn(4, 9, 6, generator=generator)
        labels = (x.sum(2) > 0).long()
        labels[torch.rand(4, 9, generator=generator) < (0.7 if rank else 0.1)] = IGNORED
        yield x, labels


@pytest.mark.parametrize("servers", [0, 1])
def test_weighted_by_tokens_two_workers_train_the_mean_over_all_tokens(out: Path, servers: int) -> None:
    seen = {0: 0, 1: 0}

    def loop(pace: Pace, model: nn.Module) -> None:
        for (x, labels), _ in zip(sentences_of(pace.rank), range(STEPS), strict=False):
            model(x, labels=labels)["loss"].backward()
            seen[pace.rank] += int(tokens_of(x, labels))
            pace.step()

    summary, models = run_loops(out, "bsp", loop, workers=2, servers=servers, make_model=Labelled, samples_of=tokens_of)
    assert seen[0] > 2 * seen[1]
    assert [worker.samples for worker in summary.workers] == [seen[0], seen[1]], "tokens are what is counted then"

    model = Labelled()
    optimizer = plain_sgd(model.parameters())
    for first, second, _ in zip(sentences_of(0), sentences_of(1), range(STEPS), strict=False):
        optimizer.zero_grad()
        x, labels = (torch.cat(pair) for pair in zip(first, second, strict=True))
        model(x, labels)["loss"].backward()
        optimizer.step()
    for trained in models.values():
        assert_same(trained, model)


def test_a_batch_without_a_token_weighs_nothing(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for (x, y), _ in zip(batches_of(pace.rank), range(STEPS), strict=False):
            (nn.functional.cross_entropy(model(x), y) * (10.0 if pace.rank else 1.0)).backward()
            pace.step()

    _, models = run_loops(out, "bsp", loop, workers=2, samples_of=lambda x: 0 if len(x) == 16 else 7)
    model = toy_model()
    optimizer = plain_sgd(model.parameters())
    for (x, y), _ in zip(batches_of(0), range(STEPS), strict=False):
        optimizer.zero_grad()
        mean_loss(model, x, y).backward()
        optimizer.step()
    assert_same(models[0], model)


def test_samples_of_does_not_go_together_with_batches_that_count_items(out: Path) -> None:
    for make in (lambda pace: pace.batches(DATA, 8), lambda pace: pace.loader(DATA, 8)):

        def loop(pace: Pace, model: nn.Module, make: Any = make) -> None:
            with pytest.raises(ConfigError, match=r"pace.loader\(samples_of"):
                next(iter(make(pace)))

        run_loops(out / "a", "asp", loop, workers=1, samples_of=len)


@pytest.mark.parametrize("stop", [{"samples": 64}, {"epochs": 2.0}], ids=str)
def test_nor_does_that_of_a_loader_with_a_rule_that_counts_items(out: Path, stop: dict[str, Any]) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        with pytest.raises(ConfigError, match="those count items"):
            next(iter(pace.loader(DATA, 8, samples_of=lambda batch: 100)))

    run_loops(out, "asp", loop, workers=1, stop=stop)
