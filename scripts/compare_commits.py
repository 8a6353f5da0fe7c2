"""Compares the figures of benchmarks at another commit with those of the working tree, measured in turn.

    python -m scripts.compare_commits COMMIT [exchange control_plane overhead] [--rounds 5]

The other commit is checked out into a temporary worktree, and its package is found through PYTHONPATH; both sides use
the same interpreter. A round runs each benchmark once on either side, and the side that goes first alternates, so that
a machine that grows slower during the comparison slows both. A figure is the first number of a row of the benchmark's
table; the last column is the median of the rounds' ratios, new over old, with the smallest and the largest beside it.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^ ?(?P<what>\S.*?) {2,}(?P<value>\d[\d.e+]*)(?: ?(?P<unit>ms|MB|us|s))?(?: |$)")

Figures = dict[tuple[str, str, str], list[float]]
"""The values of each (benchmark, row, unit), one a round."""


def figures_of(output: str) -> Iterator[tuple[str, str, float]]:
    """Yields (row, unit, first number) of each row of a benchmark's table."""
    for line in output.splitlines():
        if match := ROW.match(line):
            yield match["what"], match["unit"] or "", float(match["value"])


def run(tree: Path, benchmark: str) -> str:
    """Returns what the benchmark of this checkout prints. Raises RuntimeError if it prints no figure."""
    script = tree / "benchmarks" / f"{benchmark}.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    if not any(figures_of(done.stdout)):
        raise RuntimeError(f"{script} ended with {done.returncode} and printed no figures: {done.stderr[-500:]}")
    return done.stdout


def measure(trees: tuple[Path, Path], benchmarks: list[str], rounds: int) -> tuple[Figures, Figures]:
    """Returns the figures of the two checkouts, measured in turn."""
    found: tuple[Figures, Figures] = (defaultdict(list), defaultdict(list))
    for number in range(rounds):
        for benchmark in benchmarks:
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                print(f"round {number + 1} of {rounds}: {benchmark}, {('old', 'new')[side]}", file=sys.stderr)
                for what, unit, value in figures_of(run(trees[side], benchmark)):
                    found[side][benchmark, what, unit].append(value)
    return found


def table(old: Figures, new: Figures) -> list[str]:
    """Returns the lines of the table, one for each figure that both sides have."""
    lines = [f"{'benchmark':<14} {'what':<34} {'old':>12} {'new':>12}   new over old"]
    for key in [key for key in old if key in new and all(old[key])]:
        benchmark, what, unit = key
        ratios = [b / a for a, b in zip(old[key], new[key], strict=True)]
        before, after = (f"{statistics.median(values):,.4g} {unit}".strip() for values in (old[key], new[key]))
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        lines.append(f"{benchmark:<14} {what:<34} {before:>12} {after:>12}   {spread}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what to compare the working tree with")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each benchmark on either side")
    parser.add_argument("benchmarks", nargs="*", default=["exchange", "control_plane", "overhead"])
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "old")
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", old, arguments.commit], cwd=ROOT, check=True)
        try:
            found = measure((old, ROOT), arguments.benchmarks, arguments.rounds)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", old], cwd=ROOT, check=True)
    print("\n".join(table(*found)))


if __name__ == "__main__":
    main()
