"""Draws the timeline: who computes, waits and communicates, and when; below it, how late each update was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.trace import Applied, Record, Span
from paceline.observe.formatting.number_format import counted, percent
from paceline.observe.plots import style
from paceline.observe.plots.style import ACTIVITIES, FAINT, INK, LINES, TYPE

WIDTH = 11.0
"""Width of the figure in inches."""
THICKNESS = 0.66
"""Height of a bar, in units of the distance between two workers."""
LATEST_LABELLED = 3
"""Up to this staleness every whole number is on the axis; beyond it the highest only."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message went from worker `src` at `left` to worker `dst`, and was there at `arrived`."""

    src: int
    dst: int
    left: float
    arrived: float


@dataclass(frozen=True, slots=True)
class Bar:
    """Says that a worker was busy with `activity` from `begin` to `end`, in seconds of the run."""

    rank: int
    activity: str
    begin: float
    end: float
    steps: int


def timeline_figure(
    title: str,
    note: str,
    records: Iterable[Record],
    workers: Sequence[str],
    until: float,
    messages: Iterable[Message] = (),
) -> Any:
    """Returns the figure of the first `until` seconds of a trace.

        workers   what each row is called, by rank
        messages  drawn as arrows

    The trace should reach beyond `until`, since a span is written when it ends.
    """
    records = list(records)
    updates = [r for r in records if isinstance(r, Applied) and r.shard == 0 and r.at <= until]
    heights = [0.3 + 0.42 * len(workers), *([1.0] if updates else [])]
    figure, axes = style.empty(heights, inches=(WIDTH, 1.75 + sum(heights)))
    style.title(axes[0], title, note)
    shown = [bar for bar in bars(records) if bar.begin < until]
    rows(axes[0], shown, workers, until)
    _legend(axes[0], {bar.activity for bar in shown})
    _arrows(axes[0], [m for m in messages if m.arrived <= until])
    if updates:
        _staleness(axes[1], updates, until)
    axes[0].tick_params(labelbottom=not updates)
    axes[-1].set_xlabel("seconds", fontsize=TYPE["label"], color=INK)
    return figure


def bars(records: Iterable[Record]) -> Iterator[Bar]:
    """Yields each span with its beginning and end. Spans of one worker that end together lay one after the other in
    time."""
    spans = [record for record in records if isinstance(record, Span) and record.seconds > 0]
    begun: dict[int, float] = {}
    for span in reversed(spans):
        end = min(span.at, begun.get(span.rank, span.at))
        begun[span.rank] = end - span.seconds
        yield Bar(span.rank, span.activity, end - span.seconds, end, span.steps)


def rows(axes: Any, shown: Sequence[Bar], workers: Sequence[str], until: float) -> None:
    """Draws one row a worker; to its right it says how many steps the worker made and how long it waited."""
    style.plain_axes(axes, grid="x")
    for activity, colour in ACTIVITIES.items():
        for rank in range(len(workers)):
            places = [(b.begin, b.end - b.begin) for b in shown if (b.rank, b.activity) == (rank, activity)]
            axes.broken_barh(places, (rank - THICKNESS / 2, THICKNESS), color=colour, linewidth=0)
    for bar in shown:
        if bar.activity == "computing":  # a white line between any two steps
            edges = [bar.begin + n * (bar.end - bar.begin) / max(1, bar.steps) for n in range(bar.steps)]
            axes.vlines(edges, bar.rank - THICKNESS / 2, bar.rank + THICKNESS / 2, color="white", linewidth=1)
    axes.set_xlim(0, until)
    axes.set_ylim(len(workers) - 0.5, -0.5)
    axes.set_yticks(range(len(workers)), workers)
    axes.tick_params(axis="y", length=0)
    for rank in range(len(workers)):
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center"}
        axes.annotate(_summed(shown, rank, until), (1.01, rank), **place, fontsize=TYPE["note"], color=FAINT)


def _legend(axes: Any, activities: set[str]) -> None:
    """Draws a legend above the rows, since words stand to their right; it has only the activities that occur."""
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=name) for name, colour in ACTIVITIES.items() if name in activities]
    place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.1), "borderaxespad": 0, "frameon": False}
    look: dict[str, Any] = {"fontsize": TYPE["note"], "labelcolor": INK, "handlelength": 1.0, "columnspacing": 1.2}
    axes.legend(handles=handles, **place, **look, ncols=len(handles))


def _summed(shown: Sequence[Bar], rank: int, until: float) -> str:
    """Returns a row's words: how many steps, and which share of the time was waiting."""
    own = [bar for bar in shown if bar.rank == rank]
    steps = sum(bar.steps for bar in own if bar.end <= until)
    waited = sum(min(bar.end, until) - bar.begin for bar in own if bar.activity == "waiting")
    return f"{counted(steps, 'step')}, waits {percent(waited / until)}"


def _arrows(axes: Any, messages: Iterable[Message]) -> None:
    """Draws each message as an arrow between two rows."""
    look = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.1, "mutation_scale": 9, "shrinkA": 0, "shrinkB": 0}
    for m in messages:
        down = 1 if m.dst > m.src else -1
        begin = (m.left, m.src + down * THICKNESS / 4)
        axes.annotate("", (m.arrived, m.dst - down * THICKNESS / 4), xytext=begin, arrowprops=look)


def _staleness(axes: Any, updates: Sequence[Applied], until: float) -> None:
    """Draws each update at its time, as high as its staleness; a cross is a dropped contribution."""
    style.plain_axes(axes, grid="x")
    kept = [u for u in updates if u.weight > 0]
    axes.vlines([u.at for u in kept], 0, [u.staleness for u in kept], color=FAINT, linewidth=1)
    axes.plot([u.at for u in kept], [u.staleness for u in kept], "o", color=INK, markersize=4.5, clip_on=False)
    dropped = [u for u in updates if u.weight == 0]
    look: dict[str, Any] = {"color": LINES[1], "markersize": 8, "markeredgewidth": 2, "clip_on": False}
    axes.plot([u.at for u in dropped], [u.staleness for u in dropped], "x", **look)
    high = max(u.staleness for u in updates)
    axes.set_xlim(0, until)
    axes.set_ylim(-0.2, max(1, high) + 0.2)
    axes.set_yticks(range(max(1, high) + 1) if high <= LATEST_LABELLED else (0, high))
    axes.set_ylabel("staleness", fontsize=TYPE["note"], color=INK)
    told = counted(len(kept), "update") + (f",\n{len(dropped)} dropped (x)" if dropped else "")
    axes.annotate(told, (1.01, 0.5), xycoords="axes fraction", va="center", fontsize=TYPE["note"], color=FAINT)
