"""One step of a worker: at its mini-batch, handed over when told to go, ended with the run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError, PeerLost
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model


def test_a_worker_is_at_its_mini_batch_while_it_has_one_and_at_no_other_time(out: Path) -> None:
    seen: list[tuple[bool, bool]] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        def at_it() -> bool:
            return pace._worker.progress().seconds_at_batch > 0

        for x, y in pace.batches(toy_data(), 8, epochs=2):
            nn.functional.cross_entropy(model(x), y).backward()
            before = at_it()
            pace.step()
            seen.append((before, at_it()))
            if pace.steps == 2:
                break
        for _ in pace.batches(toy_data(), 8, epochs=2):
            break  # it looks at something else, for as long as it likes
        seen.append((True, at_it()))

    run_loops(out, "asp", loop, workers=1)
    assert seen == [(True, False)] * 3


def test_the_loop_is_without_a_step_while_it_does_anything_but_hand_one_over(out: Path) -> None:
    seen: list[bool] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        def in_loop() -> bool:
            return pace._worker.progress().seconds_in_loop > 0

        exchange = pace._worker.run.node.finish

        def finish() -> object:
            seen.append(in_loop())
            return exchange()

        pace._worker.run.node.finish = finish  # type: ignore[assignment, method-assign]
        x, y = toy_data().tensors
        for _ in range(2):
            nn.functional.cross_entropy(model(x), y).backward()
            seen.append(in_loop())
            pace.step(len(x))

    run_loops(out, "asp", loop, workers=1)
    assert seen == [True, False] * 2


@pytest.mark.parametrize("scheme", ["bsp", "asp", "easgd"])
def test_one_that_is_told_to_go_hands_over_its_step_and_nobody_waits_for_it(out: Path, scheme: str) -> None:
    home: list[int] = []
    gone = threading.Event()

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 8, epochs=2, partition="uniform"):
            nn.functional.cross_entropy(model(x), y).backward()
            if pace.rank == 1 and pace.steps == 1:
                pace._worker.run.session.notice = "SIGTERM"  # in the middle of its second step, as by a signal
            if pace.rank != 1 and pace.steps == 7:
                assert gone.wait(60.0), "the others are to be there still when it goes"
            pace.step()
        if pace.rank == 1:
            pace.close()
            home.append(pace.steps)
            gone.set()

    summary, _ = run_loops(out, scheme, loop)
    assert home == [2]
    assert [(fault.party, fault.event, fault.reason) for fault in summary.faults] == [
        ("worker 1", "drained", "SIGTERM; 2 of 3 continue")
    ]
    steps = [worker.steps for worker in summary.workers]
    assert (steps[1], sum(steps)) == (2, 8 + 2 + 8 + 6), "the others train the rest of its share, in 6 batches"
    assert summary.samples == 2 * 90


def test_a_step_that_was_under_way_when_the_run_failed_does_not_go_on_alone(out: Path) -> None:
    """A loop that asks nobody whether it may go on would train to its end, with weights that stay as they are."""
    raised: list[BaseException] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 8, epochs=None):
            nn.functional.cross_entropy(model(x), y).backward()
            if pace.rank > 0:
                raise ZeroDivisionError
            assert pace._worker.run.session.over.wait(30)
            with pytest.raises(PeerLost) as caught:
                pace.step()
            raised.append(caught.value)
            raise caught.value

    with pytest.raises(RunFailed):
        run_loops(out, "asp", loop)
    assert "the coordinator is gone" in str(raised[0])


@pytest.mark.parametrize("samples_of", [None, lambda batch: 5 * len(batch[0])])
def test_an_emulated_step_lasts_by_the_items_of_its_batch_whatever_they_count_as(out: Path, samples_of: Any) -> None:
    """A step of a language model counts its tokens."""
    lasted: list[float] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        passed = pace._worker.watch.passed

        def noted(at_least: float, **more: Any) -> float:
            lasted.append(at_least)
            return passed(at_least, **more)

        pace._worker.watch.passed = noted  # type: ignore[method-assign]
        for x, y in pace.loader(toy_data(20), 8, epochs=1, samples_of=samples_of):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(5 * len(x))

    run_loops(out, "asp", loop, workers=1, cluster={"step_ms": 2.0})
    assert lasted == pytest.approx([0.002, 0.002, 0.001])


@pytest.mark.usefixtures("alone")
def test_where_the_scheme_says_how_large_batches_are_a_step_counts_their_items() -> None:
    """Else it would deal batches of as many items as they have tokens."""
    model = toy_model()
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), 0.1), scheme="lbbsp")
    with pytest.raises(ConfigError, match=r"lbbsp says how many items a batch has, .* 40 for 8: leave samples_of="):
        for x, y in pace.batches(toy_data(), 8):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(len(x) if pace.steps < 2 else 40)
    pace.abandon("as the error would")
