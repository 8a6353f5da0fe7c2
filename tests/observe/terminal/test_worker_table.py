"""The table of a run on several hosts names them, and fits 80 columns."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from paceline.observe.terminal.progress import WorkerRow
from paceline.observe.terminal.worker_table import workers_table
from tests.observe.fake_runs import row


def drawn(rows: tuple[WorkerRow, ...]) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=80).print(workers_table(rows))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("workers", [4, 16, 40])
def test_hosts_are_named_where_there_are_several(workers: int) -> None:
    rows = tuple(
        dataclasses.replace(
            row(rank),
            host=f"ip-10-0-13-{rank % 2}.eu-central-1.compute.internal",
            device="cuda:0",
            slowdown=2.5,
            staleness_mean=13.2,
            staleness_max=40,
            state="training",
        )
        for rank in range(workers)
    )
    lines = drawn(rows)
    assert any("ip-10-0-13-1" in line for line in lines)
    assert any("13.2/40" in line and "training" in line for line in lines)
    assert not any("…" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_run_on_one_host_has_no_such_column() -> None:
    assert "host" not in drawn((dataclasses.replace(row(0), host="here"), dataclasses.replace(row(1), host="here")))[0]
