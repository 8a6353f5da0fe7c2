"""Scripts as people write them, after public bug reports of training libraries: is the result that of the plain loop?

python benchmarks/cases.py [--only frozen_body,two_phases] [--jobs 1] [--seconds 300]

Each script of `benchmarks/cases/` runs under `paceline launch` in a folder of its own, with one server, and each of its
workers reports in one line of JSON what its run gave. A row of the table says what is right. A case is one of

    right     what the workers report is what the plain loop gives
    refused   the run ends with the error that names the way, where Paceline does not do it
    WRONG     anything else, also with a warning that names the way; the exit code is 1
    skipped   it needs a package that is not installed

`--seconds` is the time limit of a case. One more process of `--jobs` makes a run slower and changes no result.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # tests import this script as a module

from _verdict import verdict

SCRIPTS = Path(__file__).resolve().parent / "cases"
REPORT = re.compile(r"^\[worker (\d+)\] (\{\".*\})$", re.MULTILINE)  # a Trainer prints a dict of Python, too
ERROR = re.compile(r"^(?:\[worker \d+\] )?([\w.]*(?:Error|Exception|Iteration)\b.*)$", re.MULTILINE)
Reports = list[dict[str, Any]]
"""What the workers gave, by number."""
END_S = 30
"""Time in which `paceline launch` ends its processes in order."""


def each(**right: Any) -> Callable[[Reports], bool]:
    """Returns a check that each worker gave these values; a function among them is a check of one value."""

    def holds(value: Any, expected: Any) -> bool:
        return bool(expected(value)) if callable(expected) else value == expected

    return lambda reports: all(holds(one[name], expected) for one in reports for name, expected in right.items())


def at_most(limit: float) -> Callable[[float], bool]:
    return lambda value: value <= limit


def together(**right: int) -> Callable[[Reports], bool]:
    """Returns a check of sums over all workers."""
    return lambda reports: all(sum(one[name] for one in reports) == expected for name, expected in right.items())


def same(**right: Any) -> Callable[[Reports], bool]:
    """Returns a check of values that have to be alike on all workers as well."""
    return lambda reports: each(**right)(reports) and all(one == reports[0] for one in reports)


@dataclass(frozen=True)
class Case:
    """A script, how it is started, and what is right. `way`: what an error that names the way has in it; such an error
    is right where `right` is None."""

    script: str
    workers: int
    words: str
    right: Callable[[Reports], bool] | None
    way: str = ""
    needs: tuple[str, ...] = ()
    servers: int = 1


ROUNDING = each(off=at_most(1e-6))
ALL_TRAINED = each(end=True, all_trained=True)
NO_ODD_BATCH = each(sizes=lambda sizes: set(sizes) == {8})
LIMITED = each(largest=at_most(0.1 + 1e-6))
JOIN_AGAIN = "paceline.join again"
SFT = ("transformers", "trl", "datasets", "peft")

CASES = (
    Case("frozen_body", 2, "bsp 64", each(end=True, has_body_of_worker_0=True)),
    Case("frozen_body", 2, "asp 64", each(end=True, has_body_of_worker_0=True)),
    Case("frozen_body", 2, "esync 64", each(end=True, has_body_of_worker_0=True)),
    Case("few_trained", 2, "asp 1", each(end=True, trained=True)),
    Case("expanded_buffer", 2, "bsp", each(buffer=[0.0] * 4)),
    Case("quantization_aware", 2, "esync", each(end=True, finite=True)),
    Case("adapters_memory", 2, "bsp 12", each(mb_more=at_most(64))),
    Case("optimizer_state", 1, "asp sgd", ROUNDING),
    Case("optimizer_state", 2, "bsp adamw", ROUNDING),
    Case("limited_weights", 1, "asp clamp", LIMITED, way="constraint"),
    Case("limited_weights", 2, "bsp clamp", LIMITED, way="constraint"),
    Case("limited_weights", 2, "esync clamp", LIMITED, way="constraint"),
    Case("limited_weights", 2, "asp constraint", None, way="constraint"),
    Case("limited_weights", 2, "bsp constraint", LIMITED),
    Case("limited_weights", 2, "bsp constraint", LIMITED, servers=0),
    Case("limited_weights", 2, "esync constraint", LIMITED),
    Case("schedule_free", 2, "bsp", ROUNDING, needs=("schedulefree",)),
    Case("skipped_batch", 2, "bsp continue", each(off=at_most(1e-6), samples=16)),
    Case("skipped_batch", 2, "bsp after_backward", each(off=at_most(1e-6), samples=16)),
    Case("trainer_ragged", 2, "bsp ragged", each(off_of_step=at_most(1e-6)), needs=("transformers", "accelerate")),
    Case("worker_init_fn", 2, "bsp", together(samples=48), needs=("accelerate",)),
    Case("worker_init_fn", 3, "bsp", together(samples=48), needs=("accelerate",)),
    Case("drop_last", 2, "bsp lightning", NO_ODD_BATCH, needs=("lightning",)),
    Case("drop_last", 3, "bsp lightning", NO_ODD_BATCH, needs=("lightning",)),
    Case("drop_last", 2, "bsp trainer", NO_ODD_BATCH, needs=("transformers", "accelerate")),
    Case("drop_last", 3, "bsp trainer", NO_ODD_BATCH, needs=("transformers", "accelerate")),
    Case("skip_first_batches", 2, "bsp", together(samples=40), needs=("accelerate",)),
    Case("backbone", 2, "bsp", each(trained=True), way=JOIN_AGAIN, needs=("lightning",)),
    Case("unfreeze", 2, "bsp freeze_then_join", ROUNDING, way=JOIN_AGAIN),
    Case("unfreeze", 2, "bsp join_then_freeze", ROUNDING),
    Case("one_sample", 3, "bsp 98 16", lambda reports: all(one["smallest"] > 1 for one in reports)),
    Case("begun_anew", 2, "asp 40", each(steps=40)),
    Case("begun_anew", 2, "esync 40", each(steps=40)),
    Case("two_phases", 2, "bsp", each(first_left_body=True, second_trained_body=True)),
    Case("half_the_batch", 2, "bsp", each(batch=8)),
    Case("compiled_on_one", 2, "bsp", same(steps=8)),
    Case("shared_model_after_close", 2, "bsp", each(is_final=True)),
    Case("shared_model_after_close", 2, "asp", each(is_final=True)),
    Case("shared_model_after_close", 1, "asp", each(is_final=True)),
    Case("two_optimizers", 2, "esync", ALL_TRAINED),
    Case("step_in_backward", 2, "esync", None, way="pace.step() makes the step"),
    Case("channels_last", 2, "bsp", each(off=at_most(1e-6), channels_last=True)),
    *(
        Case("sft_trainer", 2, scheme, each(steps=lambda steps: steps > 0), needs=SFT)
        for scheme in ("bsp", "asp", "esync")
    ),
)


@dataclass(frozen=True)
class Outcome:
    verdict: str
    gave: str
    seconds: float = 0.0


def run_case(case: Case, seconds_max: float) -> Outcome:
    """Runs a case in a folder of its own."""
    if missing := [package for package in case.needs if importlib.util.find_spec(package) is None]:
        return Outcome("skipped", f"needs {', '.join(missing)}: not installed")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        printed = output_of(case, folder, seconds_max)
    seconds = time.monotonic() - began
    if printed is None:
        return Outcome("WRONG", f"not ended within {seconds_max:g} s", seconds)
    return Outcome(*judge(case, printed), seconds)


def output_of(case: Case, folder: str, seconds_max: float) -> str | None:
    """Returns all that a run prints, or None if it takes too long: then all its processes have ended, too."""
    size = ["-n", str(case.workers), "-s", str(case.servers), "--out", f"{folder}/run"]
    script = [sys.executable, str(SCRIPTS / f"{case.script}.py"), *case.words.split()]
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "launch", *size, *script], cwd=folder, start_new_session=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        return process.communicate(timeout=seconds_max)[0]
    except subprocess.TimeoutExpired:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_S)
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def judge(case: Case, printed: str) -> tuple[str, str]:
    """Returns the verdict of what a run printed, and what it gave: the reports, or else the error it ended with."""
    found = {int(rank): json.loads(report) for rank, report in REPORT.findall(printed)}
    reports = [found[rank] for rank in sorted(found)]
    if len(reports) == case.workers:
        if case.right and case.right(reports):
            return "right", shown(reports)
        warned = "; a warning names the way" if case.way and case.way in printed else ""
        return "WRONG", shown(reports) + warned
    errors = ERROR.findall(printed)
    error = errors[0] if errors else (printed.strip().splitlines() or ["nothing"])[-1]
    if case.way and case.way in error:
        return "refused" if case.right else "right", error
    return "WRONG", error


def shown(reports: Reports) -> str:
    """Returns what the workers gave in a few words: one value where they agree, and else one for each."""
    columns = {name: [one[name] for one in reports] for name in reports[0]}
    text = lambda value: f"{value:.3g}" if isinstance(value, float) else str(value)  # noqa: E731
    alike = lambda values: values[:1] if all(value == values[0] for value in values) else values  # noqa: E731
    return "; ".join(f"{name} {' and '.join(map(text, alike(values)))}" for name, values in columns.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="scripts, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of a run")
    options = parser.parse_args()
    only = set(options.only.split(",")) if options.only else {case.script for case in CASES}
    if unknown := only - {case.script for case in CASES}:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(sorted({c.script for c in CASES}))}")
    cases = [case for case in CASES if case.script in only]
    print("| case | workers | scheme, arguments | verdict: what it gave | seconds |\n|---|---|---|---|---|", flush=True)
    verdicts: Counter[str] = Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        for case, outcome in zip(cases, pool.map(lambda case: run_case(case, options.seconds), cases), strict=True):
            servers = "" if case.servers == 1 else f", -s {case.servers}"
            row = f"{case.script} | {case.workers}{servers} | {case.words}"
            print(f"| {row} | {outcome.verdict}: {outcome.gave} | {outcome.seconds:.1f} |", flush=True)
            verdicts[outcome.verdict] += 1
    print(", ".join(f"{number} {name}" for name, number in sorted(verdicts.items())))
    return verdict("every case is right or names the way", not verdicts["WRONG"])


if __name__ == "__main__":
    sys.exit(main())
