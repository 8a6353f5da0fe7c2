"""Planted bugs, and how soon `paceline fuzz` sees each (docs/fuzzing-bugs.md).

    python benchmarks/mutants.py                    all of tests/sim/all_mutants.py; claim: each within 60 s
    python benchmarks/mutants.py --only lease       those whose name has that word
    python benchmarks/mutants.py --seconds 20       claim: each within so many

One process; for every bug the fuzzer begins at seed 0, with all schemes and drawn parameters. Seconds are those of a
core that nothing else runs on (CPU time). Exit code 1 when a bug is not seen.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from _verdict import verdict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import names
from paceline.sim.fuzzing.fuzz import draw, play
from paceline.sim.fuzzing.random_parameters import schemes_of
from tests.sim.all_mutants import PLANTED


def first_caught(mutant: Callable[[pytest.MonkeyPatch], None], seconds: float) -> tuple[int | None, float, str]:
    """The first seed that fails, None if none does in that time; the seconds until then; what failed."""
    began, seed, schemes = time.process_time(), 0, names()
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        while time.process_time() - began < seconds:
            try:
                play(draw(seed, schemes_of(seed, schemes)))
            except Exception as error:  # a bug may show as any exception
                return seed, time.process_time() - began, f"{type(error).__name__}: {error}".split("; lately")[0]
            seed += 1
    return None, time.process_time() - began, f"no violation in {seed} seeds"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each bug (default: 60)")
    parser.add_argument("--only", default="", help="a word in the name of the bug")
    options = parser.parse_args(arguments)
    missed = []
    for mutant, _ in PLANTED:
        if options.only not in mutant.__name__:
            continue
        seed, seconds, what = first_caught(mutant, options.seconds)
        print(f"{seconds:5.1f} s  seed {'-' if seed is None else seed:>5}  {mutant.__name__}: {what}", flush=True)
        missed += [mutant.__name__] if seed is None else []
    return verdict(f"each planted bug is seen within {options.seconds:g} s of one core", not missed)


if __name__ == "__main__":
    sys.exit(main())
