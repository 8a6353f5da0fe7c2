"""What communicating while computing saves of a step, and how much of the communication it hides.

python benchmarks/overlap.py [--schemes bsp,asp] [--width 39] [--batch 8] [--seconds 4] [--rounds 3] [--transport tcp]

Two workers and one server train a perceptron of 25 million parameters with `paceline train`, in turn with `--overlap`
and without: gradients leave while backward makes them, and the first layers come back first. The seconds of a step are
those of the run, through its steps; what was hidden is from the run's own trace: of the time in which bytes moved, the
part in which the worker computed. All figures are medians of the rounds.

Claim: with overlap a step takes no longer, synchronous or not, and some of the communication is hidden.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from paceline.bench.report import conditions

BOUND = 1.0


class Figures(NamedTuple):
    """Of a run, or medians of several: seconds of a step, and the share of the communication that was hidden."""

    step_s: float
    hidden: float


def run(options: argparse.Namespace, scheme: str, flag: str) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        job = [sys.executable, "-m", "paceline", "train", "--scheme", scheme, "--workers", "2", "--servers", "1"]
        job += ["--model", "mlp", "--width", str(options.width), "--batch-size", str(options.batch), flag]
        job += ["--transport", options.transport, "--seconds", str(options.seconds), "--epochs", "1e9"]
        done = subprocess.run([*job, "--out", str(out)], check=False, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        summary = json.loads((out / "summary.json").read_text())
    workers = summary["workers"]
    moved = sum(worker["seconds_communicating"] + worker["seconds_hidden"] for worker in workers)
    steps = statistics.mean(worker["steps"] for worker in workers)
    return Figures(summary["seconds"] / steps, sum(worker["seconds_hidden"] for worker in workers) / moved)


def medians(runs: list[Figures]) -> Figures:
    return Figures(*map(statistics.median, zip(*runs, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", default="bsp,asp", help="one synchronous, one not")
    parser.add_argument("--width", type=float, default=39, help="of the perceptron; 39 makes 25 million parameters")
    parser.add_argument("--batch", type=int, default=8, help="samples of a step")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each")
    parser.add_argument("--transport", default="auto", help="auto: shared memory on one host; or tcp")
    options = parser.parse_args()
    print(f"{conditions()}, 2 workers, 1 server, --transport {options.transport}")
    print(f"{'scheme':<8}{'without ms':>12}{'with ms':>10}{'ratio':>8}{'hidden':>9}")
    holds = True
    for scheme in options.schemes.split(","):
        pairs = [
            (run(options, scheme, "--no-overlap"), run(options, scheme, "--overlap")) for _ in range(options.rounds)
        ]
        without, beside = (medians(list(side)) for side in zip(*pairs, strict=True))
        ratio = beside.step_s / without.step_s
        holds = holds and ratio <= BOUND and beside.hidden > 0
        row = f"{scheme:<8}{without.step_s * 1e3:>12.1f}{beside.step_s * 1e3:>10.1f}{ratio:>8.2f}{beside.hidden:>9.0%}"
        print(row, flush=True)
    print(f"ratio at most {BOUND}, and something hidden: {'holds' if holds else 'DOES NOT HOLD'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
