"""Schedulers that the loop steps itself: with any number of workers they go the way that the plain loop gives them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as torchs
from torch.utils.data import DataLoader, Subset

from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.schedules.loop_schedules import LoopProgress, LoopSchedules
from paceline.runtime.worker.schedules.pass_of_all import PassOfAll
from paceline.runtime.worker.schedules.schedule_steps import position_of
from tests.runtime.own_loops import run_loops, toy_data, toy_model
from tests.runtime.schedules import MakeScheduler, mine, noted

SAMPLES, BATCH, EPOCHS = 90, 8, 4
LENGTH = EPOCHS * 12  # batches of the plain loop, of which the last of each epoch is short


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def one_cycle(optimizer: torch.optim.Optimizer, length: int = LENGTH) -> Any:
    return torchs.OneCycleLR(optimizer, max_lr=0.1, total_steps=length)


def warmed_up(optimizer: torch.optim.Optimizer, length: int = LENGTH) -> Any:
    parts = [torchs.LinearLR(optimizer, 0.1, total_iters=5), torchs.CosineAnnealingLR(optimizer, T_max=length - 5)]
    return torchs.SequentialLR(optimizer, parts, milestones=[5])


def linear(optimizer: torch.optim.Optimizer, length: int = LENGTH) -> Any:
    return torchs.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / length))


def chained(optimizer: torch.optim.Optimizer, length: int = LENGTH) -> Any:
    return torchs.ChainedScheduler([torchs.ConstantLR(optimizer, 0.5, 6), torchs.PolynomialLR(optimizer, length)])


KINDS: list[MakeScheduler] = [one_cycle, warmed_up, linear, chained]


class Trained:
    """What the loops of all workers have noted: by rank the rates that were used, and where the schedulers ended."""

    def __init__(self) -> None:
        self.rates: defaultdict[int, list[float]] = defaultdict(list)
        self.ends: dict[int, int] = {}
        self.models: dict[int, nn.Module] = {}
        self.samples: defaultdict[int, int] = defaultdict(int)

    def step(self, pace: Pace, model: nn.Module, x: torch.Tensor, y: torch.Tensor, part: float = 1.0) -> None:
        self.rates[pace.rank].append(mine.optimizer.param_groups[0]["lr"])
        self.samples[pace.rank] += len(x)
        (nn.functional.cross_entropy(model(x), y) * part).backward()


def trained(
    out: Path,
    scheme: str,
    loop: Callable[[Pace, nn.Module, Trained], Any],
    *,
    workers: int = 3,
    servers: int = 0,
    **more: Any,
) -> Trained:
    """Runs the loops, each of which returns its scheduler."""
    noted_here = Trained()

    def closed(pace: Pace, model: nn.Module) -> None:
        scheduler = loop(pace, model, noted_here)
        pace.close()
        noted_here.ends[pace.rank] = position_of(scheduler)

    _, noted_here.models = run_loops(
        out, scheme, closed, workers=workers, servers=servers, optimizer=noted(sgd), **more
    )
    return noted_here


def by_batches(scheduler_of: MakeScheduler, *, epochs: int = EPOCHS) -> Callable[[Pace, nn.Module, Trained], Any]:
    """The loop that everybody writes."""

    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = scheduler_of(mine.optimizer)
        for x, y in pace.batches(toy_data(SAMPLES), BATCH, epochs=epochs):
            noted_here.step(pace, model, x, y)
            pace.step()
            scheduler.step()
        return scheduler

    return loop


def plain(
    scheduler_of: MakeScheduler, batches: list[tuple[torch.Tensor, torch.Tensor]]
) -> tuple[nn.Module, list[float]]:
    """The plain loop over these batches, and the rate at each step."""
    model, rates = toy_model(), []
    optimizer = sgd(model.parameters())
    scheduler = scheduler_of(optimizer)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return model, rates


# ---- the law -----------------------------------------------------------------------------------------------------
SCHEMES = [("bsp", 0), ("bsp", 2), ("asp", 1), ("ssp", 1), ("localsgd", 0), ("esync", 1), ("lbbsp", 0), ("eamsgd", 1)]


@pytest.mark.parametrize(("scheme", "servers"), SCHEMES)
def test_a_schedule_goes_all_its_way_with_three_workers(
    scheme: str, servers: int, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them makes a third of the steps, and OneCycleLR would end at its peak."""
    found = trained(out, scheme, by_batches(one_cycle), servers=servers)
    assert set(found.ends.values()) == {LENGTH}
    assert sum(found.samples.values()) == EPOCHS * SAMPLES
    assert sum(map(len, found.rates.values())) < LENGTH + 3 * EPOCHS  # each may have a short one as an epoch ends
    assert "schedule" not in capsys.readouterr().err


@pytest.mark.parametrize(("workers", "scheme"), [(2, "bsp"), (3, "bsp"), (4, "bsp"), (3, "localsgd")])
def test_in_lock_step_a_rate_is_that_of_the_samples_so_far(workers: int, scheme: str, out: Path) -> None:
    found = trained(out, scheme, by_batches(linear), workers=workers)
    first = [0.1 * (1 - workers * step / LENGTH) for step in range(-(-SAMPLES // BATCH) // workers)]
    for rates in found.rates.values():
        assert rates[: len(first)] == pytest.approx(first)
        assert rates == sorted(rates, reverse=True)
    assert set(found.ends.values()) == {LENGTH}


@pytest.mark.parametrize("scheduler_of", KINDS)
@pytest.mark.parametrize(
    ("scheme", "servers"), [("bsp", 0), ("bsp", 1), ("asp", 1), ("localsgd", 0), ("esync", 0), ("diloco", 0)]
)
def test_a_worker_that_is_alone_has_the_rates_of_the_plain_loop_bit_for_bit(
    scheduler_of: MakeScheduler, scheme: str, servers: int, out: Path
) -> None:
    batches = []

    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = scheduler_of(mine.optimizer)
        for x, y in pace.batches(toy_data(SAMPLES), BATCH, epochs=EPOCHS):
            batches.append((x, y))
            noted_here.step(pace, model, x, y)
            pace.step()
            scheduler.step()
        return scheduler

    found = trained(out, scheme, loop, workers=1, servers=servers)
    model, rates = plain(scheduler_of, batches)
    assert found.rates[0] == rates
    if scheme == "bsp" and not servers:
        for ours, theirs in zip(found.models[0].parameters(), model.parameters(), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("samples", [8, 20, 64, 90, 97])
@pytest.mark.parametrize("size", [1, 8, 32])
@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("last", [True, False])
def test_alone_each_call_is_one_step_whatever_batches_and_accumulation_are(
    samples: int, size: int, together: int, last: bool
) -> None:
    """`together` batches make a step; `last`: what is left of a pass does as well."""
    optimizer, passes = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0), PassOfAll(0, 0.0)
    progress = [LoopProgress()]
    schedules = LoopSchedules([optimizer], lambda: progress[-1], own=False, says=False)
    try:
        scheduler = torchs.ExponentialLR(optimizer, 0.9)
        own = held = calls = 0
        for _ in range(3):
            part = passes.begin(samples, size, 1)
            lengths = [min(size, samples - at) for at in range(0, samples, size)]
            for at, length in enumerate(lengths, start=1):
                passes.handed_out(length * part)
                held += length
                if at % together == 0 or (last and at == len(lengths)):
                    own, held = own + held, 0
                    calls += 1
                    progress.append(progress_of(own, own, calls, fullness=passes.fullness))
                    scheduler.step()
                    assert scheduler.last_epoch == calls
    finally:
        schedules.end(in_full=False)


# ---- what a call stands for --------------------------------------------------------------------------------------
def test_a_step_of_several_batches_is_a_step_of_as_many_of_all(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = linear(mine.optimizer, LENGTH // 2)
        for at, (x, y) in enumerate(pace.batches(toy_data(SAMPLES), BATCH, epochs=EPOCHS), start=1):
            noted_here.step(pace, model, x, y, 0.5)
            if at % 2 == 0:
                pace.step()
                scheduler.step()
        return scheduler

    assert set(trained(out, "bsp", loop).ends.values()) == {LENGTH // 2}


def test_a_schedule_by_epochs_stays_as_it_is(out: Path) -> None:
    """A pass is one of all workers together; the scheduler may be called after it, or have nothing to do with it."""

    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = torchs.StepLR(mine.optimizer, 1, 0.5)
        data = toy_data(SAMPLES)
        for _ in range(EPOCHS):
            for x, y in pace.batches(data, BATCH):
                noted_here.step(pace, model, x, y)
                pace.step()
            scheduler.step()
        return scheduler

    found = trained(out, "bsp", loop)
    assert set(found.ends.values()) == {EPOCHS}
    assert all(sorted(set(rates), reverse=True) == [0.1, 0.05, 0.025, 0.0125] for rates in found.rates.values())


def test_a_loader_of_ones_own_is_gone_through_by_each_worker_so_its_steps_are_its_own(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        loader = DataLoader(toy_data(SAMPLES), BATCH)
        scheduler = one_cycle(mine.optimizer, EPOCHS * len(loader))
        for _ in range(EPOCHS):
            for x, y in loader:
                noted_here.step(pace, model, x, y)
                pace.step(len(y))
                scheduler.step()
        return scheduler

    assert set(trained(out, "bsp", loop).ends.values()) == {LENGTH}
    assert "schedule" not in capsys.readouterr().err


@pytest.mark.parametrize("stop", [None, {"samples": EPOCHS * SAMPLES}])
def test_a_loader_of_ones_own_follows_where_the_samples_of_all_end_the_run_or_a_shard_divides_it(
    stop: dict[str, int] | None, out: Path
) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        data = toy_data(SAMPLES)
        loader: Any = DataLoader(data, BATCH) if stop else DataLoader(pace.shard(data), BATCH)
        scheduler = linear(mine.optimizer)
        for _ in range(EPOCHS):
            for x, y in loader:
                if pace.over:
                    return scheduler
                noted_here.step(pace, model, x, y)
                pace.step(len(y))
                scheduler.step()
        return scheduler

    ends = set(trained(out, "bsp", loop, stop=stop).ends.values())
    assert all(LENGTH * 0.9 <= end <= LENGTH for end in ends), ends


def test_batches_without_end_are_ended_by_each_loop_so_steps_are_its_own(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = one_cycle(mine.optimizer)
        for _, (x, y) in zip(range(LENGTH), pace.batches(toy_data(SAMPLES), BATCH, epochs=None), strict=False):
            noted_here.step(pace, model, x, y)
            pace.step()
            scheduler.step()
        return scheduler

    assert set(trained(out, "bsp", loop).ends.values()) == {LENGTH}


def test_after_the_end_of_the_run_calls_make_no_steps(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = by_batches(linear)(pace, model, noted_here)
        pace.stop()
        made = position_of(scheduler)
        for _ in range(5):
            pace.step(1)
            scheduler.step()
        assert position_of(scheduler) == made
        return scheduler

    trained(out, "bsp", loop)


def test_a_scheduler_that_is_made_in_the_middle_begins_there(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        by_batches(linear, epochs=2)(pace, model, noted_here)
        return by_batches(linear, epochs=2)(pace, model, noted_here)

    assert set(trained(out, "bsp", loop).ends.values()) == {LENGTH // 2}


@pytest.mark.parametrize("made", ["before the optimizer is wrapped", "of pace.optimizer"])
def test_whose_optimizer_the_scheduler_has_does_not_matter(made: str, out: Path) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = linear(mine.optimizer if made.startswith("before") else pace.optimizer)
        for x, y in pace.batches(toy_data(SAMPLES), BATCH, epochs=EPOCHS):
            noted_here.step(pace, model, x, y)
            pace.optimizer.step()
            scheduler.step()
        return scheduler

    assert set(trained(out, "bsp", loop).ends.values()) == {LENGTH}


def test_a_scheduler_that_pace_scheduler_was_given_is_not_stepped_twice(out: Path) -> None:
    """Neither by itself, nor by what `pace.scheduler` has returned."""

    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = linear(mine.optimizer)
        returned = pace.scheduler(scheduler, every=BATCH)
        for x, y in pace.batches(toy_data(SAMPLES), BATCH, epochs=EPOCHS):
            noted_here.step(pace, model, x, y)
            pace.step()
            scheduler.step()
            returned.step()
        return scheduler

    (end,) = set(trained(out, "bsp", loop).ends.values())
    assert end <= LENGTH


# ---- a run that goes on ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("keeps", [True, False], ids=["its state is loaded", "it begins anew"])
def test_after_a_resume_it_goes_on_where_it_was(keeps: bool, out: Path) -> None:
    saved: dict[int, Any] = {}
    data = toy_data(SAMPLES)

    def first(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = linear(mine.optimizer)
        for at, (x, y) in enumerate(pace.batches(data, BATCH, epochs=EPOCHS), start=1):
            noted_here.step(pace, model, x, y)
            pace.step()
            scheduler.step()
            if at == 9:
                saved[pace.rank] = pace.state_dict(), scheduler.state_dict()
        return scheduler

    whole = trained(out / "whole", "bsp", first, workers=2)

    def second(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = linear(mine.optimizer)
        if keeps:
            kept = {key: value for key, value in saved[pace.rank][1].items() if key != "lr_lambdas"}
            scheduler.__dict__.update(kept)
            mine.optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
        for x, y in pace.batches(data, BATCH, epochs=EPOCHS):
            noted_here.step(pace, model, x, y)
            pace.step()
            scheduler.step()
        return scheduler

    states = {rank: state for rank, (state, _) in saved.items()}
    rest = trained(out / "rest", "bsp", second, workers=2, states=states)
    assert set(rest.ends.values()) == set(whole.ends.values()) == {LENGTH}
    for rank, rates in rest.rates.items():
        begun = 0 if keeps else 1  # the rate before the first step is that of the optimizer
        assert rates[begun:] == pytest.approx(whole.rates[rank][9 + begun :])


# ---- what is named -----------------------------------------------------------------------------------------------
def progress_of(samples: int, own: int, steps: int, **more: Any) -> LoopProgress:
    return LoopProgress(samples=samples, own=own, steps=steps, **{"shared": True, "passing": True, **more})


def stepped(
    scheduler_of: MakeScheduler, *, workers: int, calls: int, length: int, own: bool = False, **more: Any
) -> torch.optim.Optimizer:
    """A loop of so many calls, each after a step, and one sample a step."""
    optimizer, now = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0), [LoopProgress()]
    schedules = LoopSchedules([optimizer], lambda: now[0], own=own, says=True)
    scheduler = scheduler_of(optimizer, length)  # type: ignore[call-arg]
    for at in range(1, calls + 1):
        now[0] = progress_of(at * workers, at, at, **more)
        scheduler.step()
    schedules.end(in_full=True)
    return optimizer


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"workers": 3, "calls": 100, "length": 300}, ""),
        ({"workers": 3, "calls": 100, "length": 305}, ""),  # batches that do not come out even
        (
            {"workers": 3, "calls": 100, "length": 300, "own": True},
            'made 100 of its 300 steps: .*schedule="own".* asks',
        ),
        ({"workers": 3, "calls": 100, "length": 100, "own": True}, ""),
        ({"workers": 3, "calls": 40, "length": 300}, r"made 120 of its 300 steps: .*give it the batches of the whole"),
        (
            {"workers": 3, "calls": 100, "length": 300, "passing": None, "shared": False},
            r"100 of its 300 steps: .*pace\.scheduler\(",
        ),
        ({"workers": 3, "calls": 100, "length": 100}, r"has made its 100 steps, and the run goes on: .*whole run"),
        ({"workers": 1, "calls": 100, "length": 100}, ""),
    ],
)
def test_a_schedule_that_misses_its_end_is_named_with_the_way_out(
    settings: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stepped(one_cycle, **settings)
    told = capsys.readouterr().err
    assert told.count("paceline: the schedule (OneCycleLR) ") == bool(words)
    assert re.search(words, told), told


def test_no_line_is_printed_of_a_run_that_was_cut_short(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = by_batches(one_cycle, epochs=1)(pace, model, noted_here)
        pace.stop("good enough")
        return scheduler

    trained(out, "bsp", loop)
    assert "schedule" not in capsys.readouterr().err


def test_an_every_that_does_not_fit_is_named_with_the_one_that_does(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def loop(pace: Pace, model: nn.Module, noted_here: Trained) -> Any:
        scheduler = pace.scheduler(one_cycle(mine.optimizer, 45), every=BATCH * pace.workers)
        data = toy_data(SAMPLES)
        for x, y in pace.batches(Subset(data, range(SAMPLES)), BATCH, epochs=EPOCHS):
            noted_here.step(pace, model, x, y)
            pace.step()
        return scheduler

    trained(out, "bsp", loop)
    told = capsys.readouterr().err
    assert told.count("made 15 of its 45 steps: pace.scheduler(every=24) makes one for 24 samples") == 1
    assert "all workers have trained 360; every=8 makes all of them" in told
