"""Draws accuracy against time, exchanges and samples; several seeds become their mean and a band."""

from __future__ import annotations

import bisect
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paceline.core.trace import Evaluated
from paceline.observe.plots import style
from paceline.observe.plots.accuracy_axes import accuracy_axes, heights, name_upward, standalone_line, target_lines
from paceline.observe.plots.digest import Digest, RunDigest
from paceline.observe.plots.style import FAINT, INK, TYPE

PARTITION = re.compile(r" partition=\S+")
POINTS = 200
"""Points of a mean over seeds along the axis."""
Place = Callable[[Digest, Evaluated], float]
Line = list[tuple[float, float]]
AXES: dict[str, tuple[str, Place]] = {
    "time": ("seconds of training", lambda _, e: e.at),
    "exchange": ("exchanges of a worker (mean over workers)", lambda d, e: d.exchanges_by(e.at)),
    "samples": ("training samples seen by all workers together", lambda _, e: e.samples),
}
"""By name: the label of the axis, and where an evaluation lies on it."""


def accuracy(entries: Sequence[RunDigest], by: str, standalone: float | None = None) -> Any | None:
    """Draws one panel for each partition of the data; returns None when nothing was evaluated.

    by: a key of AXES. standalone: the accuracy of one worker alone, a dotted line in each panel.
    """
    label, place = AXES[by]
    drawn = [entry for entry in entries if any(d.evaluations for d in entry.digests)]
    if not drawn:
        return None
    kinds = list(dict.fromkeys(entry.group.runs[0].shares for entry in drawn))
    figure, panels = style.beside(len(kinds))
    if len(kinds) > 1:
        drawn = _alike(drawn)
    seen = [e.accuracy for entry in drawn for d in entry.digests for e in d.evaluations]
    levels = _targets(drawn) | ({standalone} if standalone is not None else set())
    panels[0].set_ylim(heights(seen, levels))  # of all panels
    for axes, kind in zip(panels, kinds, strict=True):
        accuracy_axes(axes, label)
        _panel(axes, [entry for entry in drawn if entry.group.runs[0].shares == kind], place)
        if standalone is not None:
            standalone_line(axes, standalone)
        if len(kinds) > 1:
            dealt = "i.i.d." if kind == "uniform" else "not i.i.d."
            axes.set_title(f"partition {kind}: {dealt}", loc="left", fontsize=TYPE["label"], color=INK)
    name_upward(panels[0])
    return figure


def _alike(entries: Sequence[RunDigest]) -> list[RunDigest]:
    """Returns the entries with one name and colour in every panel: what the panel's title says is no part of a name."""
    short = [replace(e, group=replace(e.group, name=PARTITION.sub("", e.name))) for e in entries]
    first = {entry.name: entry.look for entry in reversed(short)}
    return [replace(entry, look=first[entry.name]) for entry in short]


def _panel(axes: Any, entries: Sequence[RunDigest], place: Place) -> None:
    """Draws the curves of one panel, with its targets and names."""
    labels = []
    for entry in entries:
        lines = [[(place(d, e), e.accuracy) for e in d.evaluations] for d in entry.digests if d.evaluations]
        end = _several(axes, entry, lines) if len(lines) > 1 else _one(axes, entry, lines[0])
        labels.append((end, entry))
    target_lines(axes, _targets(entries))
    for target in _targets(entries):
        where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(f"target {target:g}", (0, target), xytext=(3, 3), **where, fontsize=TYPE["small"], color=FAINT)
    axes.set_xlim(left=0)
    style.end_labels(axes, labels)


def _targets(entries: Sequence[RunDigest]) -> set[float]:
    """Returns the target accuracies of these runs."""
    return {s.target_accuracy for entry in entries for s in entry.group.summaries if s.target_accuracy}


def _one(axes: Any, entry: RunDigest, line: Line) -> tuple[float, float]:
    """Draws a single run; returns where its curve ends."""
    axes.plot(*zip(*line, strict=True), **style.look(entry.look), linewidth=2.4)
    return line[-1]


def _several(axes: Any, entry: RunDigest, lines: Sequence[Line]) -> tuple[float, float]:
    """Draws each run thin, to its own end, and the mean with its band as far as all of them go; returns the
    mean's end."""
    look = style.look(entry.look)
    for line in lines:
        axes.plot(*zip(*line, strict=True), **look, linewidth=0.8, alpha=0.45)
    xs, means, deviations = mean_line(lines)
    axes.plot(xs, means, **look, linewidth=2.6)
    low = [m - d for m, d in zip(means, deviations, strict=True)]
    high = [m + d for m, d in zip(means, deviations, strict=True)]
    axes.fill_between(xs, low, high, color=look["color"], alpha=0.15, linewidth=0)
    return xs[-1], means[-1]


def mean_line(lines: Sequence[Line]) -> tuple[list[float], list[float], list[float]]:
    """Returns places, means and standard deviations, from the latest beginning to the earliest end."""
    begin, end = max(line[0][0] for line in lines), min(line[-1][0] for line in lines)
    xs = [begin + (end - begin) * n / (POINTS - 1) for n in range(POINTS)]
    ys = [[between(line, x) for line in lines] for x in xs]
    return xs, [statistics.fmean(y) for y in ys], [statistics.stdev(y) for y in ys]


def between(line: Line, x: float) -> float:
    """Returns the line's height at x, straight between its points, and level beyond them."""
    after = bisect.bisect_left(line, x, key=lambda point: point[0])
    if after == 0:
        return line[0][1]
    if after == len(line):
        return line[-1][1]
    (x0, y0), (x1, y1) = line[after - 1], line[after]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
