"""A run of a thousand worker processes on one machine: how soon it trains, how much memory, how it ends. Linux.

python benchmarks/worker_processes.py [--workers 1000] [--seconds 60] [--step-ms 2000] [OPTIONS OF train ...]

One run of `paceline train` under asp: a tiny model, one server, workers whose steps are emulated, so that a few cores
do for all. After half of --seconds a tenth of the workers is killed at once (SIGKILL) and does not come back
(--restarts 0). Memory of a worker is its share of what its process maps (Pss of /proc/PID/smaps_rollup: memory that n
processes share counts 1/n for each), and what is its own alone (Private_*), medians of 20 workers.

Claim: training begins within 60 s, and the run ends in order, with the workers that are left and a summary.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from _processes import by_name, training
from _verdict import verdict
from losses import training_began

from paceline.core.trace import MemberChange
from paceline.observe.runs.summary import SUMMARY, read_summary
from paceline.observe.trace.trace_file import TRACE, read_trace

BEGINS_S_MAX = 60.0
MEASURED = 20
"""Workers whose memory is measured."""
WORDS = ["--scheme", "asp", "--servers", "1", "--model", "mlp", "--width", "0.1", "--data", "digits"]
WORDS += ["--batch-size", "1", "--eval-every", "600", "--restarts", "0", "--checkpoint-every", "0"]


def memory(pid: int) -> tuple[float, float]:
    """Returns the megabytes of a process: its share of all it maps, and those that nobody shares."""
    kib = {"Pss": 0, "Private": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split()[:2]
        kind = name.rstrip(":").partition("_")[0]
        if name == "Pss:" or kind == "Private":
            kib[kind] += int(value)
    return kib["Pss"] * 1024 / 1e6, kib["Private"] * 1024 / 1e6


def workers_of(root: int) -> dict[int, int]:
    """Returns the processes of the workers, by rank."""
    prefix = "pace worker "
    return {int(name[len(prefix) :]): pid for name, pid in by_name(root).items() if name.startswith(prefix)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of training (default: 60)")
    parser.add_argument("--step-ms", type=float, default=2000.0, help="of a step at least (default: 2000)")
    job, more = parser.parse_known_args()  # any other option of `paceline train` follows
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {job.workers} workers")
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        out, began = Path(folder) / "run", time.monotonic()
        words = [*WORDS, "--workers", str(job.workers), *more]
        with training(out, *words, seconds=job.seconds, step_ms=job.step_ms) as run:
            begins_s = training_began(run) - began
            print(f"training began after {begins_s:.1f} s", flush=True)
            said: list[str] = []
            threading.Thread(target=lambda: said.extend(run.stderr or ()), daemon=True).start()
            threading.Event().wait(max(0.0, began + begins_s + job.seconds / 2 - time.monotonic()))
            there = workers_of(run.pid)
            found = [memory(there[rank]) for rank in sorted(there)[:: max(1, len(there) // MEASURED)][:MEASURED]]
            shares, private = (statistics.median(of[k] for of in found) for k in (0, 1))
            print(f"{len(there)} workers: a worker has {shares:.1f} MB, {private:.1f} MB of it alone", flush=True)
            for rank in sorted(there)[:: max(1, job.workers // (job.workers // 10 or 1))]:
                os.kill(there[rank], signal.SIGKILL)
            code = run.wait(job.seconds + 120)
        ended_s = time.monotonic() - began - begins_s
        if code:
            print(*said[-5:], sep="")
            return verdict(f"a run that ends in order: exit code {code}", False)
        summary = read_summary(out / SUMMARY)
        records = [record for record in read_trace(out / TRACE) if isinstance(record, MemberChange)]
    lost = sum(record.event == "lost" and record.party.startswith("worker") for record in records)
    steps = sorted(worker.steps for worker in summary.workers)
    print(
        f"trained {summary.seconds:.1f} s, {lost} workers lost, {sum(steps)} steps (of a worker {steps[0]} to "
        f"{steps[-1]}), over {ended_s - summary.seconds:.1f} s after that, reason: {summary.reason}"
    )
    holds = begins_s <= BEGINS_S_MAX and summary.reason == "seconds"
    return verdict(f"training within {BEGINS_S_MAX:.0f} s, a run that ends in order", holds)


if __name__ == "__main__":
    sys.exit(main())
