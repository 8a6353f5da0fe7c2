"""How long each engine takes from the command to the first step: `python -m tests.lab.start_times [--json]`, as root.

Two hosts of the lab, a worker each, one server, TLS; the engine itself is up before the clock starts. In turn, and the
median of `--times` starts. What is not installed is left out, with the reason.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from paceline.runtime.run_folder.status_file import STATUS, read_status
from tests.lab.engines import ENGINES
from tests.lab.lab import Lab, missing, opened
from tests.lab.launch_run import Launched
from tests.launch.process_tree import within

TRAIN = [
    "paceline",
    "train",
    "--data",
    "digits",
    "--scheme",
    "bsp",
    "--epochs",
    "0",
    "--seconds",
    "600",
    "--out",
    "run",
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.start_times", description=__doc__)
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    parser.add_argument("--times", type=int, default=3, help="starts of each engine (3)")
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=f"of {', '.join(ENGINES)} (all)")
    options = parser.parse_args()
    if why_not := missing():
        print(why_not, file=sys.stderr)
        return 1
    rows = []
    for name, engine in ENGINES.items():
        if options.engines and name not in options.engines:
            continue
        if why_not := engine.missing():
            print(f"{name}: {why_not}", file=sys.stderr)
            continue
        seconds = starts(name, options.times)
        rows.append({"engine": name, "version": engine.told_version(), "seconds": round(statistics.median(seconds), 2)})
        if not options.json:
            print(f"{name:6} {rows[-1]['seconds']:6.2f} s   {rows[-1]['version']}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))
    return 0


def starts(name: str, times: int) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        for lab in opened(Path(folder), 2):
            with ENGINES[name].running(lab) as (words, environment):
                return [_start(lab, words, environment) for _ in range(times)]
    raise AssertionError("no lab")


def _start(lab: Lab, words: list[str], environment: dict[str, str]) -> float:
    begun = time.monotonic()
    launched = Launched(lab, *words, *TRAIN, **environment)
    assert within(150, lambda: _trains(lab.folder / "run")), launched.said
    seconds = time.monotonic() - begun
    launched.process.send_signal(signal.SIGINT)
    launched.ends(30)
    shutil.rmtree(lab.folder / "run")
    return seconds


def _trains(folder: Path) -> bool:
    return (folder / STATUS).exists() and read_status(folder).state == "training"


if __name__ == "__main__":
    sys.exit(main())
