"""Communication while computing changes when things happen and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.core.trace import OVERLAPS, Decided, Span
from paceline.live.control import handshake
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps import overlap_trial
from paceline.runtime.worker.steps.overlap import Overlap
from paceline.runtime.worker.steps.overlap_trial import BLOCK, WARM_UP
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved
from tests.runtime.own_loops import plain_steps, run_loops, toy_data

STEPS = 8
SLICED: dict[str, Any] = {"slice_mb": 0.00005, "overlap": "on"}


class Odd(nn.Module):
    """A layer used twice, a frozen one, one that takes part now and then, and one that never does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.sometimes, self.never = nn.Linear(6, 6), nn.Linear(6, 6)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        x = self.frozen(self.shared(self.shared(self.first(x)).relu()))
        self.calls += 1
        return self.last(self.sometimes(x) if self.calls % 3 == 0 else x)


def odd_model() -> nn.Module:
    """Seeded by hand: the workers are threads, and torch has one generator for all of them."""
    model, generator = Odd(), torch.Generator().manual_seed(4)
    for p in model.parameters():
        nn.init.normal_(p, std=0.4, generator=generator)
    return model


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def both(out: Path, scheme: str, **options: Any) -> tuple[Tensor, Tensor]:
    """What a loop of two workers ends with, without overlap and with it."""
    data, found = toy_data(), []

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, data, epochs=3)

    for overlap in ("off", "on"):
        cluster = {**SLICED, "overlap": overlap}
        _, models = run_loops(out / overlap, scheme, loop, cluster=cluster, **options)
        found.append(weights(models[0]))
    return found[0], found[1]


@pytest.fixture
def resumed_early(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every step of every worker: had the scheme its gradient before backward was over?"""
    seen: list[bool] = []
    plain = Overlap.handed_over

    def watched(self: Overlap, samples: int) -> bool:
        seen.append(plain(self, samples))
        return seen[-1]

    monkeypatch.setattr(Overlap, "handed_over", watched)
    return seen


# ---- the same numbers ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("servers", "model"), [(1, {"name": "mlp", "width": 0.25}), (2, {"name": "cnn", "width": 0.1})], ids=["mlp", "cnn"]
)
def test_bsp_is_the_same_to_the_last_bit(runner: Runner, out: Path, servers: int, model: dict[str, Any]) -> None:
    found = []
    for overlap in ("off", "on"):
        cluster = {"slice_mb": 0.008, "overlap": overlap}
        config = config_for(out / overlap, steps=STEPS, servers=servers, cluster=cluster, model=model)
        summary = runner(config)
        assert [worker.steps for worker in summary.workers] == [STEPS] * 2
        found.append(saved(config))
    assert found[0].keys() == found[1].keys()
    for name in found[0]:
        if "running" not in name:
            assert torch.equal(found[0][name], found[1][name]), name


@pytest.mark.parametrize("scheme", ["bsp", "ksync", "weedout"])
def test_layers_left_out_used_twice_and_frozen_are_the_same_to_the_last_bit(
    out: Path, scheme: str, resumed_early: list[bool]
) -> None:
    one, other = both(out, scheme, workers=1, servers=2, make_model=odd_model)
    assert torch.equal(one, other)
    assert any(resumed_early)


def test_two_workers_with_momentum_are_the_same_to_the_last_bit(out: Path, resumed_early: list[bool]) -> None:
    def momentum(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)

    one, other = both(out, "bsp", workers=2, servers=1, make_model=odd_model, optimizer=momentum)
    assert torch.equal(one, other)
    assert any(resumed_early)


def test_gradients_of_several_batches_and_local_steps_leave_with_the_last_one(
    out: Path, resumed_early: list[bool]
) -> None:
    for parameters in ({"steps": 2}, {"payload": "delta"}):
        one, other = both(out / str(len(parameters)) / "-".join(parameters), "bsp", workers=2, **parameters)
        assert torch.equal(one, other)
    assert not any(resumed_early)


# ---- where it is off -------------------------------------------------------------------------------------
def test_a_step_that_is_drawn_out_hands_nothing_over_before_its_time(
    threads: Runner, out: Path, resumed_early: list[bool]
) -> None:
    cluster = {"slice_mb": 0.002, "step_ms": 2.0}
    threads(config_for(out, steps=3, cluster=cluster))
    assert resumed_early == []


def test_a_model_in_one_slice_has_nothing_to_gain(threads: Runner, out: Path, resumed_early: list[bool]) -> None:
    threads(config_for(out, steps=3))
    assert resumed_early == []


# ---- loops it does not go with ---------------------------------------------------------------------------
def test_a_loop_with_batches_of_its_own_hands_over_at_the_step(out: Path, resumed_early: list[bool]) -> None:
    x, y = toy_data().tensors

    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(4):
            for part in (slice(0, 8), slice(8, 16)):  # adding up two backward passes is right then
                nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            pace.step(16)

    summary, _ = run_loops(out, "bsp", loop, workers=2, cluster=SLICED)
    assert [worker.samples for worker in summary.workers] == [64, 64]
    assert resumed_early == [False] * 8


def clipping(pace: Pace, model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    pace.step()


def twice(pace: Pace, model: nn.Module) -> None:
    model(torch.ones(2, 6)).sum().backward()
    pace.step()


def miscounting(pace: Pace, model: nn.Module) -> None:
    pace.step(3)


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        (clipping, "gradients were changed between backward and pace.step"),
        (twice, "got a gradient twice before pace.step"),
        (miscounting, r"pace.step\(3\) after a batch of 8 from pace.batches"),
    ],
)
def test_a_loop_that_would_come_too_late_is_told_so(out: Path, instead: Any, why: str) -> None:
    data = toy_data()

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(data, 8):
            nn.functional.cross_entropy(model(x), y).backward()
            instead(pace, model)

    with pytest.raises(RunFailed, match=f"{why}.*--overlap off"):
        run_loops(out, "bsp", loop, workers=1, cluster=SLICED)


# ---- what is seen of it ----------------------------------------------------------------------------------
def test_the_trace_and_the_summary_tell_the_same_of_what_was_hidden(processes: Runner, out: Path) -> None:
    cluster = {"slice_mb": 0.02, "transport": "tcp"}
    summary = processes(config_for(out, steps=STEPS, scheme="asp", cluster=cluster, model={"name": "cnn"}))
    spans = [record for record in read_trace(out / "trace.jsonl") if isinstance(record, Span)]
    for worker in summary.workers:
        told = sum(span.hidden for span in spans if span.rank == worker.rank)
        assert told == pytest.approx(worker.seconds_hidden, abs=1e-6)
        assert min(span.seconds for span in spans if span.rank == worker.rank) >= 0


@pytest.mark.parametrize(("cores", "early"), [(2, False), (64, True)])
def test_auto_tries_to_communicate_meanwhile_where_there_is_a_core_for_everybody(
    out: Path, resumed_early: list[bool], monkeypatch: pytest.MonkeyPatch, cores: int, early: bool
) -> None:
    monkeypatch.setattr(handshake, "cores", lambda: cores)
    monkeypatch.setattr(handshake, "allowed_cpus", lambda: frozenset(range(cores)))
    monkeypatch.setattr(overlap_trial, "WARM_UP_S", 0.0)
    data = toy_data()
    run_loops(
        out, "bsp", lambda pace, model: plain_steps(pace, model, data, epochs=8), cluster={**SLICED, "overlap": "auto"}
    )
    assert any(resumed_early) == early


@pytest.fixture
def cores_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is crowded, on whatever machine the test runs, and the trial begins after a few steps."""
    monkeypatch.setattr(overlap_trial, "WARM_UP_S", 0.0)
    monkeypatch.setattr(handshake, "cores", lambda: 64)
    monkeypatch.setattr(handshake, "allowed_cpus", lambda: frozenset(range(64)))


@pytest.mark.usefixtures("cores_for_all")
def test_steps_that_are_tried_both_ways_lead_to_the_same_numbers(out: Path, resumed_early: list[bool]) -> None:
    found, data = [], toy_data()
    for overlap in ("off", "auto"):
        _, models = run_loops(
            out / overlap,
            "bsp",
            lambda pace, model: plain_steps(pace, model, data, epochs=11),
            workers=2,
            make_model=odd_model,
            cluster={**SLICED, "overlap": overlap},
        )
        found.append(weights(models[0]))
    assert torch.equal(*found)
    assert any(resumed_early)


@pytest.mark.usefixtures("cores_for_all")
def test_what_was_measured_is_in_the_trace_and_in_the_summary_and_later_steps_go_by_it(
    out: Path, resumed_early: list[bool]
) -> None:
    data, steps = toy_data(), 0

    def loop(pace: Pace, model: nn.Module) -> None:
        nonlocal steps
        steps = plain_steps(pace, model, data, epochs=10)

    summary, _ = run_loops(out, "bsp", loop, workers=1, cluster={**SLICED, "overlap": "auto"})
    (told,) = [record for record in read_trace(out / "trace.jsonl") if isinstance(record, Decided)]
    assert (told.party, told.rank) == ("worker 0", 0)
    assert summary.workers[0].overlap == f"{told.verdict}: {told.reason}"
    pairs = int(told.reason.partition("(")[2].split()[0])
    later = steps - WARM_UP - 2 * BLOCK * pairs - 1  # the result is known when the step after the last pair has begun
    assert later > 0
    assert len(resumed_early) >= BLOCK * pairs + (later if told.verdict == OVERLAPS else 0)
    assert len(resumed_early) <= BLOCK * pairs + (later + 1 if told.verdict == OVERLAPS else 0)


def test_where_overlap_is_asked_for_or_refused_nothing_is_measured(out: Path) -> None:
    data = toy_data()
    for overlap in ("on", "off"):
        summary, _ = run_loops(
            out / overlap,
            "bsp",
            lambda pace, model: plain_steps(pace, model, data, epochs=6),
            workers=1,
            cluster={**SLICED, "overlap": overlap},
        )
        assert [worker.overlap for worker in summary.workers] == [""]
