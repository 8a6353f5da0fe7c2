"""Lists which figures there are, what each is called, and how it is to be read.

`paceline plot` draws them; `html_report.py` puts them into one page. A new figure is a new Plate here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.trace import Applied, Record, Span
from paceline.observe.formatting.number_format import counted, seconds_text
from paceline.observe.plots import bars, curves, figure_numbers, staleness, time_shares
from paceline.observe.plots.digest import Digest, RunDigest
from paceline.observe.plots.figure_numbers import Numbers
from paceline.observe.plots.style import INK, TYPE, words
from paceline.observe.plots.timeline import timeline_figure

ROWS_MAX = 16
"""Rows of a timeline. Of more workers, half the rows are the slowest and half the fastest."""


@dataclass(frozen=True, slots=True)
class Plate:
    """Describes one figure. `draw` returns it, or None where the runs have nothing to show in it; `numbers` says the
    same as a table."""

    name: str
    title: str
    caption: str
    draw: Callable[[Sequence[RunDigest]], Any | None]
    numbers: Callable[[Sequence[RunDigest]], Numbers]


PLATES = (
    Plate(
        "accuracy-time",
        "Accuracy by time",
        "Test accuracy against seconds of training. Of several seeds: each thin, their mean thick with a band of one "
        "standard deviation, as far as all of them go.",
        functools.partial(curves.accuracy, by="time"),
        functools.partial(figure_numbers.of_accuracy, by="time"),
    ),
    Plate(
        "accuracy-exchange",
        "Accuracy by exchange",
        "How much each exchange over the network brought: exchanges of a worker, in the mean over workers.",
        functools.partial(curves.accuracy, by="exchange"),
        functools.partial(figure_numbers.of_accuracy, by="exchange"),
    ),
    Plate(
        "accuracy-samples",
        "Accuracy by samples",
        "How much each sample brought. Late or diverging updates need more of them for the same accuracy.",
        functools.partial(curves.accuracy, by="samples"),
        functools.partial(figure_numbers.of_accuracy, by="samples"),
    ),
    Plate(
        "target",
        "Time to the target",
        "Seconds to the target accuracy, and how many times sooner than the baseline that was; runs of one seed are "
        "compared with each other. Dots are runs, lines one standard deviation.",
        bars.to_target,
        figure_numbers.of_target,
    ),
    Plate(
        "throughput",
        "Throughput",
        "Training samples a second, of all workers together.",
        bars.throughput,
        figure_numbers.of_throughput,
    ),
    Plate(
        "traffic",
        "Traffic",
        "What the workers sent and received, as counted on the way, a second; and in all.",
        bars.traffic,
        figure_numbers.of_traffic,
    ),
    Plate(
        "computing",
        "Computing, communicating, waiting",
        "Where the time of each worker went, by rank. The share of computing is the computing-time ratio.",
        time_shares.computing,
        figure_numbers.of_shares,
    ),
    Plate(
        "staleness",
        "Staleness",
        "How many versions were applied between the weights a contribution was computed on and its own update: share "
        "of the contributions. The dashed line is the mean.",
        staleness.staleness,
        figure_numbers.of_staleness,
    ),
)
"""All figures but the timelines, in the order of the page."""


def timelines(entries: Sequence[RunDigest]) -> Iterator[Plate]:
    """Yields one plate for the first run of each group that has spans."""
    for entry in entries:
        if any(isinstance(record, Span) for record in entry.digests[0].begin):
            yield Plate(
                f"timeline-{slug(entry.name)}",
                f"Timeline: {entry.name}",
                f"The first steps of {entry.group.runs[0].path}: what each worker was at; below, staleness.",
                functools.partial(_timeline, entry.digests[0], entry.name),
                functools.partial(_numbers_of_timeline, entry.digests[0]),
            )


def titled(plate: Plate, figure: Any) -> Any:
    """Returns the figure with its title in it, for a file of its own; timelines have one already."""
    if not plate.name.startswith("timeline"):
        figure.suptitle(plate.title, x=0.01, ha="left", fontsize=TYPE["title"], fontweight="bold", color=INK)
    return figure


def slug(name: str) -> str:
    """Returns a name as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or "run"


def _timeline(digest: Digest, name: str, _: Sequence[RunDigest]) -> Any:
    """Draws the first steps of a run."""
    workers = {worker.rank: worker for worker in digest.summary.workers}
    shown = chosen(digest)
    rows = {rank: row for row, rank in enumerate(shown)}
    records: list[Record] = [r for r in digest.begin if isinstance(r, Applied)]
    records += [_moved(r, rows[r.rank]) for r in digest.begin if isinstance(r, Span) and r.rank in rows]
    labels = [f"{rank}" + (f"  ×{workers[rank].slowdown:.3g}" if workers[rank].slowdown != 1 else "") for rank in shown]
    some = f" {counted(len(shown), 'worker')} of {len(workers)}: the slowest and the fastest." * (
        len(shown) < len(workers)
    )
    return timeline_figure(words(name), f"The first {seconds_text(digest.until)}.{some}", records, labels, digest.until)


def _numbers_of_timeline(digest: Digest, _: Sequence[RunDigest]) -> Numbers:
    """Returns what a timeline shows."""
    return figure_numbers.of_timeline(digest)


def chosen(digest: Digest) -> list[int]:
    """Returns the ranks in a timeline: all, or those at both ends by speed; by rank."""
    ranks = sorted(worker.rank for worker in digest.summary.workers)
    if len(ranks) <= ROWS_MAX:
        return ranks
    speed = {w.rank: w.steps / (w.seconds_computing or 1.0) for w in digest.summary.workers}
    by_speed = sorted(ranks, key=lambda rank: (speed[rank], rank))
    return sorted(by_speed[: ROWS_MAX // 2] + by_speed[-ROWS_MAX // 2 :])


def _moved(span: Span, row: int) -> Span:
    """Returns the span in another row, since a timeline may show some workers only."""
    return Span(at=span.at, rank=row, activity=span.activity, seconds=span.seconds, steps=span.steps)
