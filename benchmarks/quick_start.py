"""How soon the command does something: a whole run of one step, and the verbs that only print.

python benchmarks/quick_start.py [--rounds 5] [--workers 4] [--scheme esync]

Each round measures in turn, as new processes:

  torch     python -c "import torch", which every run needs
  run       paceline train --steps 1, from its start to its end with model, summary and curve.png
  --help, status, schemes

Then come the phases of a run, and what the fork server imports, both as medians over the rounds. The modules' bytecode
is cached, as after an installation: a run before the first round sees to that. `cpu` is the processor time of a command
and of all its processes, which another load of the machine changes less.

The claims: a run takes at most 1.4 times as long as importing torch, and a verb that only prints at most 0.15 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _verdict import verdict

from paceline.bench.report import conditions

RATIO_MAX, VERB_MAX_S = 1.4, 0.15
VERBS = (["--help"], ["status", "run"], ["schemes"])
PHASES = {
    "python": "Python starts",
    "fork server started": "the command, until the fork server starts",
    "data loaded": "fork server: torch, the package, data",
    "all joined": "forks, imports of the parties, connections",
    "training begins": "layout, measured steps",
    "run over": "training, last evaluation, model",
    "processes ended": "processes end",
    "files written": "summary and curve.png",
    "command done": "report, fork server ends",
    "exit": "Python ends",
}
"""Texts by the moment that ends a phase, in order."""
IMPORTS = """
import gc, json, time
gc.disable()  # as the fork server does
laps = {}
def lap(name):
    global last
    now = time.perf_counter()
    laps[name], last = now - last, time.perf_counter()
last = time.perf_counter()
import torch; lap("torch")
import paceline.runtime.process_main; lap("the package")
from paceline import config
from paceline.runtime.worker.train_loop import load_data
load_data(config.build({})); lap("data (digits)")
import torch._dynamo; lap("torch._dynamo")
import numba; lap("numba")
import matplotlib.figure; lap("matplotlib")
print(json.dumps(laps))
"""


def timed(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Runs a command; returns its seconds, and the processor seconds of it and its processes."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *command], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds, process.returncode = time.monotonic() - began, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime


def phases(words: Sequence[str], folder: Path) -> dict[str, float]:
    """Makes a run; returns the seconds of each phase by the moment that ends it."""
    script, file = Path(__file__).with_name("_start_phases.py"), folder / "phases.json"
    began = time.monotonic()
    timed([str(script), str(file), str(began), *words], folder)
    moments = {**json.loads(file.read_text()), "exit": time.monotonic() - began}
    ends = [0.0, *(moments[name] for name in PHASES)]
    return {name: after - before for name, before, after in zip(PHASES, ends, ends[1:], strict=False)}


def imports(folder: Path) -> dict[str, float]:
    """Returns how many seconds the imports of the fork server take, and what it does without, one after the other."""
    run = [sys.executable, "-c", IMPORTS]
    laps: dict[str, float] = json.loads(subprocess.run(run, cwd=folder, capture_output=True, check=True).stdout)
    return laps


def show(heading: str, rows: Sequence[dict[str, float]], texts: dict[str, str]) -> None:
    """Prints a table of medians in milliseconds."""
    print(f"\n{heading}")
    for name, text in texts.items():
        print(f"  {1000 * statistics.median(row[name] for row in rows):7.0f} ms  {text}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--scheme", default="esync")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    run = ["train", "--steps", "1", "--workers", str(options.workers), "--scheme", options.scheme]
    print(f"{conditions()}, load {os.getloadavg()[0]:.1f}, {options.rounds} rounds", flush=True)
    commands = {"torch": ["-c", "import torch"], "run": ["-m", "paceline", *run]}
    commands |= {verb[0]: ["-m", "paceline", *verb] for verb in VERBS}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    parts, laps = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timed(["-m", "paceline", *run, "--out", "run"], folder)  # writes bytecode; `status` shows it
        for command in commands.values():
            timed(command, folder)
        for _ in range(options.rounds):
            for what, command in commands.items():
                seconds[what].append(timed(command, folder))
            parts.append(phases(run, folder))
            laps.append(imports(folder))
    medians = {what: statistics.median(wall for wall, _ in all_) for what, all_ in seconds.items()}
    for what, all_ in seconds.items():
        print(f"{what:<8} {medians[what]:6.2f} s, cpu {statistics.median(cpu for _, cpu in all_):5.2f} s")
    show("phases of a run", parts, PHASES)
    show("imports, in one process", laps, {name: name for name in laps[0]})
    pairs = zip(seconds["run"], seconds["torch"], strict=True)
    ratio = statistics.median(run_s / torch_s for (run_s, _), (torch_s, _) in pairs)
    slowest = max(medians[verb[0]] for verb in VERBS)
    return max(
        verdict(f"a run takes {ratio:.2f} times torch's import, claimed at most {RATIO_MAX}", ratio <= RATIO_MAX),
        verdict(f"the slowest verb takes {slowest:.2f} s, claimed at most {VERB_MAX_S}", slowest <= VERB_MAX_S),
    )


if __name__ == "__main__":
    sys.exit(main())
