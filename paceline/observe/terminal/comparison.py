"""Compares finished runs in tables, and gives the same as JSON: `paceline summary`."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from paceline.observe.formatting.columns import columns
from paceline.observe.formatting.number_format import (
    accuracy_text,
    count_text,
    counted,
    megabytes,
    percent,
    seconds_text,
)
from paceline.observe.runs.run_folders import Group, RunFolder
from paceline.observe.runs.seed_statistics import SeedStatistics, Spread, baseline, standings
from paceline.observe.runs.summary import Summary, WorkerSummary
from paceline.observe.terminal.progress import WorkerRow
from paceline.observe.terminal.race import why

RESULTS = ("scheme", "runs", "to target", "times", "accuracy", "smp/s", "ended")
COSTS = ("scheme", "comp", "comm", "wait", "hidden", "stale", "MB up", "MB down", "MB/s up", "MB/s down")
NONE = "-"
"""Stands where a run has no such number."""


WIDTH = 80
"""Columns of a terminal that the tables must fit; where they do not, long names stand above them by number."""


def tables(groups: Sequence[Group]) -> str:
    """Returns two tables, results and costs, and a sentence. Names that are too long for them stand above, by
    number."""
    order = standings(groups)
    found, costs = [result(s) for s in order], [cost(s.group) for s in order]
    parts = [columns(RESULTS, found), columns(COSTS, costs, last=">")]
    if any(len(line) > WIDTH for part in parts for line in part.splitlines()):
        parts = _numbered(order, found, costs)
    return "\n\n".join([*parts, textwrap.fill(sentence(groups, order), WIDTH, break_long_words=False)])


def _numbered(
    order: Sequence[SeedStatistics], found: Sequence[tuple[str, ...]], costs: Sequence[tuple[str, ...]]
) -> list[str]:
    """Returns the same with numbers in place of names and words, and with seconds as plain numbers."""
    short = [f"{s.group.first.scheme} [{n}]" for n, s in enumerate(order, 1)]
    told = [f"{name}: {row[0]}; ended: {row[-1]}" for name, row in zip(short, found, strict=True)]
    legend = [textwrap.fill(line, WIDTH, subsequent_indent="    ", break_long_words=False) for line in told]
    reached = [_reached(s, lambda x: seconds_text(x) if x < 60 else f"{x:.0f} s") for s in order]
    results = [(name, row[1], at, *row[3:-1]) for name, at, row in zip(short, reached, found, strict=True)]
    costs = [(name, *row[1:]) for name, row in zip(short, costs, strict=True)]
    return ["\n".join(legend), columns(RESULTS[:-1], results, last=">"), columns(COSTS, costs, last=">")]


def result(s: SeedStatistics) -> tuple[str, ...]:
    """Returns the cells of one scheme, as in RESULTS."""
    count = len(s.group.runs)
    return (
        s.name,
        str(count),
        _reached(s),
        _shown(s.speedup, lambda x: f"{x:.1f}"),
        _shown(s.accuracy, accuracy_text),
        _shown(s.samples_per_second, count_text),
        ", ".join(sorted({run.reason for run in s.group.summaries})),
    )


def _reached(s: SeedStatistics, shown: Callable[[float], str] = seconds_text) -> str:
    """Returns the cell with the time to the target."""
    if s.group.first.target_accuracy is None:
        return NONE
    if s.seconds_to_target is None:
        return "missed"
    missed = len(s.group.runs) - s.reached
    return s.seconds_to_target.text(shown) + (f" ({missed} missed)" if missed else "")


def _shown(spread: Spread | None, shown: Callable[[float], str]) -> str:
    """Returns a spread as text, or `-`."""
    return NONE if spread is None else spread.text(shown)


def cost(group: Group) -> tuple[str, ...]:
    """Returns the cells of one scheme, as in COSTS: means over the runs, all workers of each together."""
    runs = group.summaries

    def mean(value: Callable[[Summary], float | None], shown: Callable[[float], str]) -> str:
        """Returns the mean over the runs that have such a number, or NONE."""
        spread = Spread.of(map(value, runs))
        return NONE if spread is None else shown(spread.mean)

    return (
        group.name,
        mean(lambda s: s.shares.computing, percent),
        mean(lambda s: s.shares.communicating, percent),
        mean(lambda s: s.shares.waiting, percent),
        mean(lambda s: s.hidden, percent),
        mean(lambda s: s.staleness_mean, lambda x: f"{x:.1f}"),
        mean(lambda s: s.bytes_up or None, lambda x: megabytes(round(x))),
        mean(lambda s: s.bytes_down or None, lambda x: megabytes(round(x))),
        mean(lambda s: rate(s.bytes_up, s), lambda x: megabytes(round(x))),
        mean(lambda s: rate(s.bytes_down, s), lambda x: megabytes(round(x))),
    )


def rate(count: int, summary: Summary) -> float | None:
    """Returns bytes per second; None where none were counted, as in a run that did not end."""
    return count / summary.seconds if count and summary.seconds else None


def sentence(groups: Sequence[Group], order: Sequence[SeedStatistics]) -> str:
    """Returns who won, and why; over several seeds, by how much."""
    if all(len(group.runs) == 1 for group in groups):
        return why([group.first for group in groups], [group.name for group in groups])
    best, reference = order[0], baseline(groups)
    if best.seconds_to_target is None:
        return f"No scheme reached its target; {best.name} came closest with {_shown(best.accuracy, accuracy_text)}."
    runs = counted(best.reached, "run")
    sooner = f"{best.name} reached {best.group.first.target_accuracy:g} in {_reached(best)} over {runs}"
    if best.group is reference or best.speedup is None:
        return f"{sooner}."
    return f"{sooner}, {best.speedup.text(lambda x: f'{x:.1f}')} times as fast as {reference.name}."


def row_of(worker: WorkerSummary, seconds: float) -> WorkerRow:
    """Returns a worker at the end of a run of `seconds`, as the live table shows it."""
    shares = worker.shares
    faults = f"{worker.refused} refused" if worker.refused else f"{worker.wild} wild" if worker.wild else ""
    return WorkerRow(
        rank=worker.rank,
        host=worker.host,
        device=worker.device,
        slowdown=worker.slowdown,
        steps=worker.steps,
        samples_per_second=worker.samples / seconds if seconds else 0.0,
        computing=shares.computing,
        waiting=shares.waiting,
        communicating=shares.communicating,
        hidden=worker.hidden,
        staleness_mean=worker.staleness_mean,
        staleness_max=worker.staleness_max,
        state=faults,
    )


# ---- as JSON -------------------------------------------------------------------------------------------------
def to_json(groups: Sequence[Group], notes: Sequence[str]) -> str:
    """Returns groups, runs and notes as JSON, with the figures that the tables derive."""
    order = standings(groups)
    document = {
        "baseline": baseline(groups).name,
        "groups": [_group(standing) for standing in order],
        "runs": [_run(group, run) for group in groups for run in group.runs],
        "notes": list(notes),
    }
    return json.dumps(document, indent=2)


def _group(s: SeedStatistics) -> dict[str, Any]:
    """Returns the statistics of runs that differ in their seed, for JSON."""
    spreads = ("seconds_to_target", "speedup", "accuracy", "samples_per_second")
    numbers = {name: value and dataclasses.asdict(value) for name in spreads for value in [getattr(s, name)]}
    return {"name": s.name, "runs": len(s.group.runs), "reached": s.reached, **numbers}


def _run(group: Group, run: RunFolder) -> dict[str, Any]:
    """Returns everything about one run, for JSON: its summary, and what tables derive of it."""
    s = run.summary
    derived = {"shares": dataclasses.asdict(s.shares), "hidden": s.hidden, "staleness_mean": s.staleness_mean}
    return {"path": str(run.path), "group": group.name, **json.loads(s.to_json()), **derived}
