"""The coordinator is killed (SIGKILL) during a run, again and again: does training pause, and when is it back?

Runs of `paceline train --coordinator process`, 3 workers: under bsp, whose workers talk to servers, and under esync,
whose workers ask the coordinator before every step. Pause: the longest time between two steps of one worker that
begins or ends within half a second of a kill, as the trace has them, against the longest in as many windows of that
length in the middle between two kills, where nothing happens. Back: from the kill to the line that says that all it had
heard was heard again and it goes on, seen from outside; then `status.json` has to name another process.

Claims: the median pause is at most 50 ms longer than that of the quiet windows; back within 3 s, every time; no worker
or server is lost and the run ends as it should. Exit code 1 when one fails. Elsewhere the loss of the process that
knows who takes part ends the job: torchft's lighthouse, the rendezvous host of torchrun, MXNet's scheduler.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from _processes import training

EVERY_SECONDS = 3.0
NEAR_SECONDS = 0.5
LONGER_SECONDS, BACK_SECONDS = 0.05, 3.0


def coordinator_of(out: Path) -> int:
    """As `status.json` has it; 0 while it says nothing of it."""
    try:
        parties = json.loads((out / "status.json").read_text())["parties"]
    except (OSError, ValueError, KeyError):
        return 0
    return next((party["pid"] for party in parties if party["party"] == "coordinator"), 0)


def another(out: Path, than: int) -> int:
    """The process of the coordinator, once it is another one."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if (pid := coordinator_of(out)) not in (0, than):
            return pid
        threading.Event().wait(0.05)
    raise SystemExit(f"after 10 s {out / 'status.json'} names no other coordinator than {than}")


def run(scheme: str, out: Path, kills: int) -> tuple[list[float], list[dict[str, Any]]]:
    """Seconds until it was back, after each kill; and the trace."""
    with training(out, "--scheme", scheme, "--workers", "3", "--coordinator", "process") as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        next(line for line in lines if line.startswith("["))
        backs, pid = [], another(out, 0)
        for _ in range(kills):
            threading.Event().wait(EVERY_SECONDS)
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            if not any(line.startswith("coordinator replaced") for line in lines):
                raise SystemExit("the run ended with the coordinator")
            backs.append(time.monotonic() - began)
            pid = another(out, pid)
        threading.Event().wait(EVERY_SECONDS)
    if process.returncode != 130:
        raise SystemExit(f"the run ended with {process.returncode}")
    return backs, [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]


def pauses(records: list[dict[str, Any]]) -> tuple[list[float], list[float], int]:
    """Longest around each kill, and around each moment between two; workers and servers that were lost."""
    steps: dict[int, list[float]] = defaultdict(list)
    for record in records:
        if record["kind"] == "span" and record["activity"] == "computing":
            steps[record["rank"]].append(record["at"])
    gaps = [gap for moments in steps.values() for gap in itertools.pairwise(sorted(moments))]

    def longest(moment: float) -> float:
        return max(b - a for a, b in gaps if b > moment - NEAR_SECONDS and a < moment + NEAR_SECONDS)

    changes = [record for record in records if record.get("event") == "lost"]
    kills = [record["at"] for record in changes if record["party"] == "coordinator"]
    quiet = [moment - EVERY_SECONDS / 2 for moment in kills]
    return [longest(at) for at in kills], [longest(at) for at in quiet], len(changes) - len(kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=5, help="kills under each scheme (default: 5)")
    parser.add_argument("--schemes", default="bsp,esync", help="with commas (default: bsp,esync)")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(prefix="paceline-") as name:
        for scheme in options.schemes.split(","):
            backs, records = run(scheme, Path(name) / scheme, options.n)
            around, quiet, others = pauses(records)
            pause, usual = statistics.median(around), statistics.median(quiet)
            good &= pause <= usual + LONGER_SECONDS and max(backs) <= BACK_SECONDS and not others
            good &= len(around) == len(backs) == options.n
            print(
                f"{scheme}: {len(around)} kills; longest time between two steps {pause * 1000:.0f} ms (median), "
                f"{max(around) * 1000:.0f} ms (longest), with nothing killed {usual * 1000:.0f} and "
                f"{max(quiet) * 1000:.0f} ms; back after {statistics.median(backs) * 1000:.0f} ms (median), "
                f"{max(backs) * 1000:.0f} ms (longest; bar {BACK_SECONDS:g} s); others lost: {others}",
                flush=True,
            )
    print("as claimed" if good else "NOT as claimed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
