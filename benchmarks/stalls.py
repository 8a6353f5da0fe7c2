"""Schemes that plan by measured speeds: cold starts, and a worker that is stopped (SIGSTOP) for a while and goes on.

Runs of `paceline train` on this machine. Cold: two equal workers under esync; their steps after --seconds, in several
seeds. Stopped: four workers, slowed down by 1, 1, 2 and 8, steps of 20 ms; worker 0 is stopped for 1.5 s. Its steps per
second are counted over 4 s before the stop and in windows of 1 s after it (3 s under dssp, where steps come in bursts).
It has recovered where a window begins that has at least 80 % of the steps it had before. Rounds: steps of worker 3, the
slowest, between SIGCONT and there.

Claims: cold, the steps of the two differ by at most 20 % in every seed; stopped, worker 0 recovers within 10 rounds
under esync and within 40 under lbbsp, dssp and gsp. Exit code 1 when one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _processes import pid_of
from _verdict import verdict

ROUNDS = {"esync": 10, "lbbsp": 40, "dssp": 40, "gsp": 40}
"""Within which worker 0 recovers."""

WINDOW_SECONDS = {"esync": 1.0, "lbbsp": 1.0, "dssp": 3.0, "gsp": 1.0}

SLOWDOWN = "1,1,2,8"
STEP_MS = 20
WARM_SECONDS = 6.0  # before the stop
STOP_SECONDS = 1.5
BEFORE_SECONDS = 4.0
SHARE = 0.8


def train(out: Path, *words: str, stop_at: float | None = None, seconds: float) -> None:
    """`paceline train WORDS` for so long; worker 0 is stopped once it has trained for `stop_at` seconds."""
    command = [sys.executable, "-m", "paceline", "train", "--epochs", "0", "--seconds", str(seconds)]
    run = subprocess.Popen(
        [*command, "--out", str(out), *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert run.stderr is not None
        if stop_at is not None:
            next(line for line in run.stderr if line.startswith("["))
            threading.Event().wait(stop_at)
            worker = pid_of(run.pid, "pace worker 0")
            os.kill(worker, signal.SIGSTOP)
            threading.Event().wait(STOP_SECONDS)
            os.kill(worker, signal.SIGCONT)
        _, errors = run.communicate(timeout=seconds + 120)
        if run.returncode:
            raise SystemExit(f"the run failed: {errors}")
    finally:
        run.kill()
        run.wait()


@dataclass(frozen=True)
class Recovery:
    """Of worker 0: steps per second before the stop and after recovery; seconds and rounds from SIGCONT to there."""

    before: float
    after: float
    seconds: float
    rounds: int


def steps_of(records: list[dict[str, Any]], rank: int) -> list[tuple[float, int]]:
    """When so many steps had ended."""
    return [(r["at"], r["steps"]) for r in records if r["kind"] == "span" and r["rank"] == rank and r.get("steps")]


def between(steps: list[tuple[float, int]], since: float, until: float) -> int:
    return sum(n for at, n in steps if since <= at < until)


def recovery(records: list[dict[str, Any]], window: float) -> Recovery | None:
    """None: worker 0 did not recover while the run went on."""
    spans = [r for r in records if r["kind"] == "span" and r["rank"] == 0 and r["at"] > WARM_SECONDS / 2]
    stopped = next(r for r in spans if r["seconds"] > 0.9 * STOP_SECONDS)
    went_on, began = stopped["at"], stopped["at"] - stopped["seconds"]
    own, slowest = steps_of(records, 0), steps_of(records, 3)
    before = between(own, began - BEFORE_SECONDS, began) / BEFORE_SECONDS
    last = own[-1][0] - window
    for at, _ in [(went_on, 0), *own]:
        after = between(own, at, at + window) / window
        if went_on <= at < last and after >= SHARE * before:
            return Recovery(before, after, at - went_on, between(slowest, went_on, at))
    return None


def cold(folder: Path, seeds: int, seconds: float) -> bool:
    print(f"esync, two equal workers, {seconds:g} s, cold", flush=True)
    good = True
    for seed in range(seeds):
        out = folder / f"cold-{seed}"
        train(out, "--scheme", "esync", "--workers", "2", "--seed", str(seed), seconds=seconds)
        steps = [worker["steps"] for worker in json.loads((out / "summary.json").read_text())["workers"]]
        good &= min(steps) >= 0.8 * max(steps)
        print(f"  seed {seed}: {steps[0]} and {steps[1]} steps", flush=True)
    return good


def stopped(folder: Path, scheme: str, times: int) -> bool:
    good = True
    for i in range(times):
        out = folder / f"{scheme}-{i}"
        words = ("--scheme", scheme, "--workers", "4", "--slowdown", SLOWDOWN, "--step-ms", str(STEP_MS))
        train(out, *words, "--seed", str(i), stop_at=WARM_SECONDS, seconds=WARM_SECONDS + 20)
        records = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
        found = recovery(records, WINDOW_SECONDS[scheme])
        good &= found is not None and found.rounds <= ROUNDS[scheme]
        if found is None:
            print(f"  {scheme}: worker 0 did not recover", flush=True)
            continue
        print(
            f"  {scheme}: {found.before:.1f} steps/s before, {found.after:.1f} after; "
            f"recovered {found.seconds:.1f} s and {found.rounds} rounds after SIGCONT",
            flush=True,
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="cold starts (default: 10)")
    parser.add_argument("--seconds", type=float, default=12.0, help="of a cold start (default: 12)")
    parser.add_argument("--stops", type=int, default=3, help="runs of each scheme with a stop (default: 3)")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="paceline-") as name:
        if options.seeds:
            good = cold(Path(name), options.seeds, options.seconds)
            failures += verdict("two equal workers differ by at most 20 % in every seed", good)
        for scheme, rounds in ROUNDS.items() if options.stops else ():
            good = stopped(Path(name), scheme, options.stops)
            failures += verdict(f"{scheme}: a stopped worker recovers within {rounds} rounds", good)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
