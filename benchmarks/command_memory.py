"""What the memory of the command grows by, while a run goes on that makes hundreds of updates a second.

python benchmarks/command_memory.py [--seconds 300] [--traced]

`paceline train` leads a run of asp with four workers and steps of 2 ms, in this process. Its resident memory is read at
a third of the time, when all modules are loaded, and at the end; with `--traced`, what Python has allocated, too. That
makes the command slower, and tracemalloc takes memory itself. The claim, without `--traced`: it grows by 1 MiB at most.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import tempfile
import threading
import tracemalloc
from pathlib import Path

from _verdict import verdict

from paceline.cli.main import main as paceline
from paceline.observe.runs.summary import read_summary

BOUND_MIB = 1.0
MIB = 1 << 20
RUN = "train --scheme asp --step-ms 2 --workers 4 --epochs 1000000000"


def resident() -> float:
    """MiB of this process in memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def sample(at_s: list[float], found: list[tuple[float, float]]) -> None:
    passed = 0.0
    for at in at_s:
        threading.Event().wait(at - passed)
        passed = at
        gc.collect()
        found.append((resident(), tracemalloc.get_traced_memory()[0] / MIB))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="of training")
    parser.add_argument("--traced", action="store_true", help="count what Python allocates, too")
    options = parser.parse_args()
    if options.traced:
        tracemalloc.start()
    found: list[tuple[float, float]] = []
    at_s = [options.seconds / 3, options.seconds * 2 / 3, options.seconds]
    with tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=sample, args=(at_s, found), daemon=True).start()
        words = [*RUN.split(), "--seconds", str(options.seconds + 5), "--out", f"{folder}/run"]
        with contextlib.redirect_stdout(sys.stderr):
            code = paceline(words)
        updates = sum(worker.exchanges for worker in read_summary(f"{folder}/run/summary.json").workers)
    print(f"{updates} updates")
    for at, (rss, allocated) in zip(at_s, found, strict=False):
        traced = f", {allocated:.2f} MiB allocated" if options.traced else ""
        print(f"{at:>6.0f} s: {rss:.1f} MiB resident{traced}")
    if code or len(found) < len(at_s):
        return verdict("the run ended as it should", holds=False)
    grown = found[-1][0] - found[0][0]
    return verdict(f"the command grew by {grown:.1f} MiB, claimed at most {BOUND_MIB:.0f}", grown <= BOUND_MIB)


if __name__ == "__main__":
    sys.exit(main())
