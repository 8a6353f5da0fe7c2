"""Goodput and final loss when a third of the learners is killed again and again, live: decoupled, diloco, bsp.

python benchmarks/learners_lost.py [--seconds 300] [--period 20] [--workers 6] [--step-ms 50] [OPTIONS OF train ...]

One run of `paceline train` a scheme and seed. Every --period seconds a third of the workers is killed (SIGKILL), the
next ones in order each time; the run starts each of them again. Steps are emulated, so that two cores do for six
workers. All schemes have one local optimizer and the same faults. Goodput is the share of the workers' capacity that
is in the model at the end (`paceline/observe/runs/goodput.py`); the loss is that of the last model on the test set.
Figures are medians over the seeds. `up`: the share of the workers' time in which they are not lost, from the trace.

Claim: decoupled has the highest goodput. Exit code 1 when it fails.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from _processes import training
from _verdict import verdict
from losses import Fault, Faults, training_began

from paceline.core.trace import MemberChange
from paceline.observe.runs.summary import SUMMARY, read_summary
from paceline.observe.trace.trace_file import TRACE, read_trace

SCHEMES = {"decoupled": (), "diloco": ("--diloco.h", "24"), "bsp": ()}
"""With what they differ from their defaults: rounds of 24 steps for both of the family."""


@dataclass(frozen=True)
class Outcome:
    """Holds what one run came to; `wrong` is "" if it ended as it should."""

    goodput: float
    loss: float
    accuracy: float
    samples: int
    up: float
    kills: int
    wrong: str


def plan(workers: int, period: float, seconds: float) -> list[Fault]:
    """Returns the kills: a third of the workers at once, every `period` seconds, but not in the last half period."""
    third, faults = max(1, workers // 3), []
    for turn in range(int((seconds - period / 2) / period)):
        faults += [Fault((turn + 1) * period, (turn * third + i) % workers) for i in range(third)]
    return faults


def up_share(out: Path, workers: int, seconds: float) -> float:
    """Returns the share of the workers' time in which they took part."""
    since: dict[str, float] = {}
    away = 0.0
    for record in read_trace(out / TRACE):
        if isinstance(record, MemberChange) and record.party.startswith("worker "):
            if record.event == "lost":
                since.setdefault(record.party, record.at)
            elif record.event == "returned" and record.party in since:
                away += record.at - since.pop(record.party)
    away += sum(seconds - at for at in since.values())
    return 1 - away / (workers * seconds)


def one(scheme: str, seed: int, out: Path, job: argparse.Namespace, more: list[str]) -> Outcome:
    """Makes a run of `scheme` with the kills of the plan."""
    faults = plan(job.workers, job.period, job.seconds)
    words = ["--scheme", scheme, "--workers", str(job.workers), "--seed", str(seed)]
    words += ["--allreduce", "servers", "--restarts", str(len(faults)), *SCHEMES[scheme], *more]
    with training(out, *words, seconds=job.seconds, step_ms=job.step_ms) as run:
        killing = Faults(faults, run.pid, out, training_began(run), job.seconds, workers=job.workers)
        killing.start()
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(run.stderr or ()), daemon=True)
        reader.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(job.seconds + 60)
        killing.end()
        code = run.poll()
        if code is None:
            run.kill()
    reader.join()
    if code != 0:
        return Outcome(
            0.0, 0.0, 0.0, 0, 0.0, len(killing.done), f"exit code {code}: {said[-1].strip() if said else ''}"
        )
    s = read_summary(out / SUMMARY)
    up = up_share(out, job.workers, s.seconds)
    return Outcome(s.goodput or 0.0, s.test_loss or 0.0, s.test_accuracy or 0.0, s.samples, up, len(killing.done), "")


def show(scheme: str, found: list[Outcome]) -> None:
    """Prints a line of the table: the medians of the runs of a scheme."""
    good = [run for run in found if not run.wrong] or found
    of = {name: statistics.median(getattr(run, name) for run in good) for name in ("goodput", "loss", "accuracy", "up")}
    wrong = "; ".join(run.wrong for run in found if run.wrong)
    print(
        f"{scheme:<12}{of['goodput']:>8.0%}{of['loss']:>9.3f}{of['accuracy']:>10.3f}{of['up']:>7.0%}"
        f"{statistics.median(run.samples for run in good):>10.0f}{good[0].kills:>7}   {wrong}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", default="decoupled,diloco,bsp")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each run (default: 300)")
    parser.add_argument("--period", type=float, default=20.0, help="seconds between two kills (default: 20)")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--step-ms", type=float, default=50.0)
    parser.add_argument("--seeds", default="1", help="seeds with commas (default: 1)")
    parser.add_argument("--out", help="keep the runs there (default: nowhere)")
    job, more = parser.parse_known_args()  # any other option of `paceline train` follows
    if unknown := set(job.schemes.split(",")) - SCHEMES.keys():
        parser.error(f"--schemes: {', '.join(sorted(unknown))}; there are {', '.join(SCHEMES)}")
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {job.seconds:g} s a run")
    print(f"{'':<12}{'goodput':>8}{'loss':>9}{'accuracy':>10}{'up':>7}{'samples':>10}{'kills':>7}")
    goodput: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        for scheme in job.schemes.split(","):
            seeds = [int(seed) for seed in job.seeds.split(",")]
            found = [one(scheme, seed, Path(job.out or folder) / f"{scheme}-{seed}", job, more) for seed in seeds]
            show(scheme, found)
            goodput[scheme] = 0.0 if any(run.wrong for run in found) else statistics.median(r.goodput for r in found)
    if "decoupled" not in goodput:
        return 0
    others = {name: share for name, share in goodput.items() if name != "decoupled"}
    said = ", ".join(f"{name} {share:.0%}" for name, share in others.items())
    claim = f"decoupled has the highest goodput: {goodput['decoupled']:.0%}; {said}"
    return verdict(claim, goodput["decoupled"] > max(others.values(), default=0.0))


if __name__ == "__main__":
    sys.exit(main())
