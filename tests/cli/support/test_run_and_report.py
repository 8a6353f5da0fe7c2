"""What the verbs say of a run that has ended."""

from __future__ import annotations

import dataclasses

from paceline.cli.support.run_and_report import faults_of
from tests.observe.fake_runs import summary, worker


def test_workers_with_like_faults_are_one_line_with_their_ranks() -> None:
    wild = dataclasses.replace(summary(), workers=tuple(worker(rank, wild=20 + rank % 3) for rank in range(40)))
    (line,) = faults_of(wild)
    assert line.startswith("40 workers (0-39): 839 of 4000 gradients (20 to 22 of each) were unusually large")
    some = dataclasses.replace(
        summary(), workers=tuple(worker(r, refused=4 if r in (1, 5, 6, 7) else 0) for r in range(9))
    )
    (line,) = faults_of(some)
    assert line.startswith("4 workers (1, 5-7): of 400 exchanges the servers refused 16 (4 of each), for bad numbers")


def test_a_single_worker_is_named_with_its_device() -> None:
    one = dataclasses.replace(summary(), workers=(worker(0), worker(1, wild=30)))
    (line,) = faults_of(one)
    assert line.startswith(
        "worker 1 (cpu): 30 of 100 gradients were unusually large and were used; --gate reject drops"
    )


def test_without_servers_the_line_says_that_the_workers_left_results_out() -> None:
    one = dataclasses.replace(summary(), servers=0, workers=(worker(0), worker(1, refused=7)))
    (line,) = faults_of(one)
    assert line == (
        "worker 1 (cpu): of 100 exchanges the workers left out 7, for NaN or infinity; each is in trace.jsonl"
    )
