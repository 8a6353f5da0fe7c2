"""A run whose output is lost ends as it would have ended."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.cli.output import DroppingStream, dropping_output

SIMULATION = "simulate --scheme bsp --parameters 1000 --workers 2 --step-ms 50 --timing-only --seconds 1"


def broken_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("lost", [broken_pipe, lambda: os.open("/dev/full", os.O_WRONLY)], ids=["pipe", "disk"])
def test_what_cannot_be_written_is_dropped_and_the_stream_stays_usable(lost: Callable[[], int]) -> None:
    with open(lost(), "w", encoding="utf-8") as file:
        stream = DroppingStream(file)
        for _ in range(3):
            print("x" * 100_000, file=stream, flush=True)
    # Closing it flushed what was left: nothing fails when the interpreter exits either.


def test_characters_that_an_encoding_lacks_are_replaced() -> None:
    raw = io.BytesIO()
    stream = DroppingStream(io.TextIOWrapper(raw, encoding="ascii"))
    print("Ünïcode ─", file=stream, flush=True)
    assert raw.getvalue() == b"?n?code ?\n"


def test_the_standard_streams_are_given_back() -> None:
    before = sys.stdout, sys.stderr
    with dropping_output():
        assert (sys.stdout, sys.stderr) != before
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("where", ["> /dev/full 2>&1", "2>&1 | true"], ids=["full disk", "closed pipe"])
def test_a_run_without_anywhere_to_print_leaves_its_summary_and_exits_with_0(where: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m paceline {SIMULATION} --out {tmp_path}/run {where}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], timeout=60)
    assert done.returncode == 0
    assert (tmp_path / "run" / "summary.json").exists()
