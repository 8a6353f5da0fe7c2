"""Bugs planted in the code of live runs, and which seed of `paceline fuzz`, or which recording, sees each.

    python benchmarks/live_mutants.py                   all of tests/mutants/live_path.toml; claim: each within 60 s
    python benchmarks/live_mutants.py --listed          each at its listed seed (make mutants); claim: each is seen
    python benchmarks/live_mutants.py --only lease      those whose name or area has that word
    python benchmarks/live_mutants.py --seconds 20      claim: each within so many

Each is a run of `paceline fuzz --seconds 60` in a process of its own, from seed 0, with all schemes and drawn
parameters, in which one line of the package is another (tests/mutants/mutated.py). Where the fuzzer does not run that
code it is `paceline replay` of a recording. A row of the table is a bug. Exit code 1 when one is not seen.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _verdict import verdict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.mutants.mutated import ROOT, Mutant, mutants


def first_caught(mutant: Mutant, seconds: float, *, listed: bool = False) -> tuple[int | None, str]:
    """The first seed that fails, None if none does in that time; what failed, or how many seeds there were.

    listed: only the seed of the list is played.
    """
    words = ["fuzz", "--seconds", f"{seconds:g}", "--shrink-seconds", "0"]
    if mutant.recording or listed:
        words = mutant.command
    command = [sys.executable, "-m", "tests.mutants.mutated", mutant.name, *words]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if mutant.recording:
        return (0, run.stdout.splitlines()[1]) if run.returncode == 1 else (None, run.stdout.splitlines()[-1])
    found = re.search(r"VIOLATION at seed (\d+): .*\n(.*)", run.stdout)
    if run.returncode == 1 and found:
        return int(found[1]), found[2].split("; lately")[0][:160]
    if run.returncode:
        raise RuntimeError(f"{mutant.name}: {run.stderr[-2000:]}")
    return None, run.stdout.splitlines()[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each bug (default: 60)")
    parser.add_argument("--listed", action="store_true", help="play the listed seed of each, and no other")
    parser.add_argument("--only", default="", help="a word in the name or the area of the bug")
    options = parser.parse_args(arguments)
    missed = []
    wanted = [mutant for mutant in mutants() if options.only in f"{mutant.name} {mutant.area}"]
    areas, names = (max(map(len, column)) for column in zip(*((of.area, of.name) for of in wanted), strict=True))
    print(f"   time    seed  {'area':{areas}}  {'bug':{names}}  seen by")
    for mutant in wanted:
        began = time.monotonic()
        seed, what = first_caught(mutant, options.seconds, listed=options.listed)
        took, shown = time.monotonic() - began, "-" if seed is None else "replay" if mutant.recording else seed
        print(f"{took:5.1f} s  {shown:>6}  {mutant.area:{areas}}  {mutant.name:{names}}  {what}", flush=True)
        missed += [mutant.name] if seed is None else []
    within = "at its listed seed" if options.listed else f"within {options.seconds:g} s"
    return verdict(f"each of {len(wanted)} planted bugs is seen {within}", not missed)


if __name__ == "__main__":
    sys.exit(main())
