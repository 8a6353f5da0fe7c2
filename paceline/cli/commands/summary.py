"""`paceline summary RUN...` prints tables of finished runs: speed, where the time went, bytes sent."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paceline.cli.support.options import Parser
from paceline.compat.esync.log_reader import esync_run
from paceline.observe.formatting.number_format import counted, leased_text
from paceline.observe.runs import run_folders
from paceline.observe.terminal import comparison
from paceline.observe.terminal.worker_table import workers_table

EPILOG = """examples:
  paceline summary runs/a                  one run: its workers too
  paceline summary runs/race runs/b        all runs of a race, and another
  paceline summary seed0 seed1 seed2       runs that differ in their seed only: mean±standard deviation
  paceline summary runs/race --json | jq '.groups[0]'

RUN is the folder that --out of train, race, simulate or launch named; a folder of such folders is all of
them; a folder with iter-1.txt, iter-2.txt, ... of ESync's workers is a run too. What is no run is skipped
with a note; of a run that did not end there is what its trace tells. Of leased data the workers' table
is followed by what became of its samples (docs/leases.md). comp, comm, wait: shares of the
workers' time. stale: versions, on average. MB are measured, up by the workers and down to them, and
include what passes by shared memory.
"""


def main(arguments: list[str]) -> int:
    """Prints the table of runs, and that of the workers of a single run; returns 0.

    Raises ConfigError where no folder holds a run.
    """
    parser = Parser(
        prog="paceline summary", usage="paceline summary RUN... [options]", description=__doc__, epilog=EPILOG
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, or of several")
    parser.add_argument(
        "--workers", action="store_true", help="show the workers of each run (default: only for a single run)"
    )
    parser.add_argument("--json", action="store_true", help="print all numbers as one JSON document")
    options = parser.parse_all(arguments)
    groups, notes = found(options.runs)
    if options.json:
        print(comparison.to_json(groups, notes))
        return 0
    print(comparison.tables(groups))
    if options.workers or sum(len(group.runs) for group in groups) == 1:
        _print_workers(groups)
    return 0


def found(paths: Sequence[str]) -> tuple[list[run_folders.Group], list[str]]:
    """Returns the runs in these folders, grouped by configuration without the seed, and notes on what was skipped.

    The notes are also told on stderr. Raises ConfigError without any run.
    """
    there, notes = run_folders.find(paths, others=[esync_run])
    for note in notes:
        print(f"paceline: {note}", file=sys.stderr)
    return run_folders.groups(there), notes


def _print_workers(groups: Sequence[run_folders.Group]) -> None:
    """Prints a table of workers for each run, and what became of leased samples."""
    from rich.console import Console

    console = Console()
    for run in (run for group in groups for run in group.runs):
        s = run.summary
        console.print(
            f"\n{run.path}: {counted(len(s.workers), 'worker')}",
            style="bold",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        console.print(workers_table(tuple(comparison.row_of(w, s.seconds) for w in s.workers)))
        if s.leased:
            console.print(leased_text(s.leased), highlight=False, markup=False, soft_wrap=True)
