"""A worker process that is stopped for a while and goes on: schemes that plan by measured speeds let it catch up."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launch.forked_cli import Command, Warm
from tests.launch.process_tree import comm, descendants, within

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")

SCHEMES: dict[str, list[str]] = {
    "esync": [],
    "lbbsp": [],
    "dssp": ["--dssp.low", "1", "--dssp.high", "4"],  # by default steps come in bursts longer than a second
    "gsp": [],
}
BEFORE_SECONDS, STOP_SECONDS, AFTER_SECONDS = 2.5, 1.5, 5.0
"""A step takes 20 ms, and 80 ms on the slowest worker."""


@pytest.fixture(scope="module")
def traces(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """By scheme, of runs that go on side by side; in each of them worker 0 is stopped and goes on."""
    folder = tmp_path_factory.mktemp("stopped")
    words = ["train", "--workers", "3", "--slowdown", "1,1,4", "--step-ms", "20", "--epochs", "0", "--seconds", "300"]
    runs: dict[str, Command] = {}
    try:
        for scheme in SCHEMES:
            options = ["--scheme", scheme, *SCHEMES[scheme], "--out", str(folder / scheme)]
            runs[scheme] = warm.paceline(*words, *options)
        for scheme in SCHEMES:
            assert within(60, lambda scheme=scheme: under_way(folder / scheme)), runs[scheme].stderr.read()  # type: ignore[misc]
        threading.Event().wait(BEFORE_SECONDS)
        workers = [worker_0(run) for run in runs.values()]
        signal_all(workers, signal.SIGSTOP)
        threading.Event().wait(STOP_SECONDS)
        signal_all(workers, signal.SIGCONT)
        threading.Event().wait(AFTER_SECONDS)
        for run in runs.values():
            run.send_signal(signal.SIGINT)
        for run in runs.values():
            run.communicate(30)
        yield {scheme: read(folder / scheme / "trace.jsonl") for scheme in SCHEMES}
    finally:
        for run in runs.values():
            for pid in reversed(descendants(run.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            run.kill()


def under_way(out: Path) -> bool:
    """Every worker has made a few steps."""
    spans = [record for record in read(out / "trace.jsonl") if record.get("steps")]
    return all(sum(record["steps"] for record in spans if record["rank"] == rank) >= 3 for rank in range(3))


def read(trace: Path) -> list[dict[str, Any]]:
    if not trace.exists():
        return []
    whole, _, _ = trace.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def worker_0(run: Command) -> int:
    return next(pid for pid in descendants(run.pid) if comm(pid) == "pace worker 0")


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_worker_that_was_stopped_is_soon_as_fast_as_before(
    traces: dict[str, list[dict[str, Any]]], scheme: str
) -> None:
    own = [record for record in traces[scheme] if record["kind"] == "span" and record["rank"] == 0]
    # It may have been stopped in a step, or on its way to a server and back, which is more than one span.
    ends = [record["at"] for record in own if record.get("steps")]
    began, went_on = next((a, b) for a, b in itertools.pairwise(ends) if b - a > 0.9 * STOP_SECONDS)

    def rate(since: float, until: float) -> float:
        """Of worker 0, in samples per second."""
        return sum(record.get("samples", 0) for record in own if since <= record["at"] < until) / (until - since)

    before, after = rate(began - 2.0, began), rate(went_on, went_on + 4.5)
    assert after > 0.5 * before, f"{before:.1f} samples/s before the stop, {after:.1f} after it"
