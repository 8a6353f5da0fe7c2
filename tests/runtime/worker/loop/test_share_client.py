"""Shares of workers that leave: the samples that are trained of an epoch are the data set, each once, whoever leaves
when."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import names
from paceline.core.trace import LEFT_UNTRAINED
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops
from tests.runtime.worker.loop.test_sample_dealer import numbered

SAMPLES, BATCH, WORKERS, EPOCHS = 120, 8, 3, 2
DATA = numbered(SAMPLES)
TWICE = Counter(dict.fromkeys(range(SAMPLES), EPOCHS))
EQUAL = ["bsp", "localsgd", "diloco", "slowmo", "postlocal", "sgp"]
"""Schemes whose workers have equal shares."""


def trained(
    out: Path,
    scheme: str,
    leaves: dict[int, int],
    *,
    calls: tuple[int, ...] = (EPOCHS,),
    how: str = "batches",
    **more: Any,
) -> Counter[int]:
    """How often each sample was trained, where workers leave after so many steps, with a batch in hand."""
    seen: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for epochs in calls:
            for x, y in getattr(pace, how)(DATA, BATCH, epochs=epochs):
                if pace.steps == leaves.get(pace.rank):
                    return
                nn.functional.cross_entropy(model(x / SAMPLES), y).backward()
                seen.extend(x[:, 0].long().tolist())
                pace.step()

    run_loops(out, scheme, loop, workers=WORKERS, **more)
    return Counter(seen)


ROWS = [(scheme, after) for scheme in names() for after in ((0, 2, 8) if scheme in EQUAL else (2,))]


@pytest.mark.parametrize(("scheme", "after"), ROWS, ids=str)
def test_each_sample_of_an_epoch_is_trained_once_whoever_leaves(out: Path, scheme: str, after: int) -> None:
    assert trained(out, scheme, {1: after}) == TWICE


@pytest.mark.parametrize("leaves", [{0: 4}, {0: 1, 2: 4}, {1: 9}, {0: 3, 1: 9}], ids=str)
@pytest.mark.parametrize("scheme", ["bsp", "diloco"])
def test_so_it_is_by_a_loop_that_asks_for_one_epoch_at_a_time(out: Path, scheme: str, leaves: dict[int, int]) -> None:
    assert trained(out, scheme, leaves, calls=(1, 1)) == TWICE


@pytest.mark.parametrize("servers", [0, 2])
@pytest.mark.parametrize("how", ["batches", "loader"])
def test_so_it_is_by_means_of_workers_and_by_a_loader(out: Path, servers: int, how: str) -> None:
    assert trained(out, "localsgd", {2: 3}, servers=servers, how=how, tau=4) == TWICE


def test_so_it_is_where_the_command_says_how_many_epochs(out: Path) -> None:
    assert trained(out, "bsp", {1: 3}, calls=(5,), stop={"epochs": float(EPOCHS), "until_stopped": False}) == TWICE


def test_a_worker_that_has_trained_what_its_loop_asks_for_leaves_nothing(out: Path) -> None:
    """Where the loop says who has which share, and other loops go through theirs more often."""

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, DATA, epochs=1 + pace.rank, partition="uniform")

    summary, _ = run_loops(out, "bsp", loop, workers=2)
    assert [worker.samples for worker in summary.workers] == [60, 120]


def test_what_nobody_was_there_to_train_is_said(out: Path) -> None:
    ended = threading.Event()

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, BATCH, epochs=1, partition="uniform"):
            if pace.rank == 1 and pace.steps == 2:
                assert ended.wait(60.0)
                return
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
        ended.set()

    run_loops(out, "asp", loop, workers=2)
    records = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
    assert [record["reason"] for record in records if record.get("verdict") == LEFT_UNTRAINED] == [
        "44 samples of worker 1's share were trained by nobody: no worker was there any more"
    ]


@pytest.mark.parametrize("scheme", ["slowmo", "easgd"])  # shares, and a queue
def test_local_work_that_is_lost_with_its_worker_is_trained_by_others_and_counted_once(out: Path, scheme: str) -> None:
    seen: Counter[int] = Counter()  # by those who stay

    def loop(pace: Pace, model: nn.Module) -> None:
        session, deadline = pace._worker.run.session, time.monotonic() + 60
        for x, y in pace.batches(DATA, BATCH, epochs=1):
            while pace.rank != 1 and 1 not in session.departed:
                assert time.monotonic() < deadline, "worker 1 is not lost"
                time.sleep(0.01)
            nn.functional.cross_entropy(model(x / SAMPLES), y).backward()
            pace.step()
            if pace.rank != 1:
                seen.update(x[:, 0].long().tolist())
            elif pace.steps == 2:
                session.reports.flush()
                raise ZeroDivisionError("the user's own")

    summary, _ = run_loops(out, scheme, loop, cluster={"restarts": 0}, tau=100)
    assert seen == Counter(range(SAMPLES))
    assert summary.samples == SAMPLES
