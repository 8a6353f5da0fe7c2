"""Draws two figures: `curve` of one run, `race` of several. Above is accuracy against time; below, where the time went.

Runs in which nothing was evaluated have no curve, and of their race there is only where the time went.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from paceline.core.trace import Ended, Evaluated, MemberChange, Record
from paceline.observe.formatting.number_format import accuracy_text, counted, loss_text, percent, seconds_text
from paceline.observe.plots import style
from paceline.observe.plots.accuracy_axes import accuracy_axes, heights, name_upward, target_lines
from paceline.observe.plots.style import FAINT, INK, TYPE
from paceline.observe.runs.summary import SUMMARY, Summary, WorkerSummary, read_summary
from paceline.observe.terminal.race import has_losses_only, labels, ranking, why
from paceline.observe.trace.trace_file import TRACE, read_trace

ROWS_LABELLED_MAX = 12
"""Workers whose rows have names and percentages."""
BARS_LABELLED_MAX = 40
"""Workers whose bars have ranks below them."""
NAMES_COLUMNS = 100
"""Characters that stand side by side under the bars."""
NARROWEST_LABELLED = 0.04
"""A share below this has no percentage in its bar."""
DOTTED_MAX = 40
"""Evaluations up to which a curve has a dot at each."""
Points = list[tuple[float, float]]
"""Seconds, and what was measured then."""


def curve(run_dir: str | os.PathLike[str], out_png: str | os.PathLike[str]) -> None:
    """Draws the run in `run_dir`. Raises PacelineError when its summary or trace is missing or damaged."""
    run_dir = Path(run_dir)
    style.save(curve_figure(read_summary(run_dir / SUMMARY), read_trace(run_dir / TRACE)), out_png)


def race(runs: Iterable[tuple[Summary, Iterable[Record]]], out_png: str | os.PathLike[str]) -> None:
    """Draws several runs, each a summary and its trace (`read_trace(...)` will do), against each other."""
    style.save(race_figure(runs), out_png)


def curve_figure(summary: Summary, records: Iterable[Record]) -> Any:
    """Returns the figure of one run."""
    workers = sorted(summary.workers, key=lambda worker: worker.rank)
    figure, (top, bottom) = style.empty((6.0, min(3.6, 0.6 + 0.32 * len(workers))))
    style.title(top, f"{summary.scheme}: {summary.task}", _outcome(summary))
    _accuracy(top, [(summary.scheme, summary, _evaluations(records))])
    _rows_of_workers(bottom, workers)
    return figure


def race_figure(runs: Iterable[tuple[Summary, Iterable[Record]]]) -> Any:
    """Returns the figure of several runs; their traces are read once."""
    loaded = {id(summary): (summary, _evaluations(records)) for summary, records in runs}
    summaries = [summary for summary, _ in loaded.values()]
    names = {id(s): name for s, name in zip(summaries, labels(summaries), strict=True)}
    entries = [(names[key], summary, evaluations) for key, (summary, evaluations) in loaded.items()]
    evaluated = any(evaluations for _, _, evaluations in entries)
    figure, panels = style.empty((5.4, 3.2) if evaluated else (1.0,))
    style.title(panels[0], _setting(summaries), why(summaries))
    if evaluated:
        _accuracy(panels[0], entries)
    ranked = ranking(summaries)
    groups_of_workers(panels[-1], [(names[id(s)], s.workers) for s in ranked])
    return figure


def _evaluations(records: Iterable[Record]) -> list[Evaluated]:
    """Returns the evaluations by their time, which is not the order in which they were made; of the last run in the
    trace."""
    evaluations: list[Evaluated] = []
    ended = False
    for record in records:
        match record:
            case Evaluated():
                evaluations.append(record)
            case Ended():
                ended = True
            case MemberChange(event="joined") if ended:  # another run begins, with a clock of its own
                evaluations, ended = [], False
    return sorted(evaluations, key=lambda evaluated: evaluated.at)


def _outcome(summary: Summary) -> str:
    """Returns the line below the title: size of the run, its result, and how it ended."""
    ran = f"{counted(len(summary.workers), 'worker')}, {counted(summary.servers, 'server')}"
    ended = f"ended after {seconds_text(summary.seconds)} ({summary.reason})"
    return f"{ran}, {summary.driver}, seed {summary.seed}; {_result(summary)}; {ended}"


def _result(summary: Summary) -> str:
    """Returns what a run came to, in words."""
    if summary.test_accuracy is None:
        return "never evaluated" if summary.test_loss is None else f"loss {loss_text(summary.test_loss)}"
    if summary.target_accuracy is None:
        return f"accuracy {accuracy_text(summary.test_accuracy)}"
    if summary.seconds_to_target is None:
        return f"accuracy {accuracy_text(summary.test_accuracy)}, target {summary.target_accuracy:g} missed"
    return f"{summary.target_accuracy:g} reached in {seconds_text(summary.seconds_to_target)}"


def _setting(summaries: Sequence[Summary]) -> str:
    """Returns the heading of a race: what is trained, on how many workers, live or simulated."""
    if not summaries:
        return "Race"
    first = summaries[0]
    return f"Race: {first.task}, {counted(len(first.workers), 'worker')}, {first.driver}"


# ---- accuracy against time -----------------------------------------------------------------------------------
def _accuracy(axes: Any, entries: Sequence[tuple[str, Summary, list[Evaluated]]]) -> None:
    """Draws the curves of accuracy, or of loss where nobody measured an accuracy."""
    accuracy_axes(axes, "seconds of training")
    by_loss = has_losses_only([summary for _, summary, _ in entries])
    name_upward(axes, "loss" if by_loss else "test accuracy")
    looks = style.looks([summary.scheme for _, summary, _ in entries])
    curves = [(name, s, [(e.at, e.loss if by_loss else e.accuracy) for e in drawn]) for name, s, drawn in entries]
    handles = {id(s): _line(axes, n, name, s, points) for n, (name, s, points) in zip(looks, curves, strict=True)}
    shown = [handles[id(s)] for s in ranking([summary for _, summary, _ in entries])]
    targets = [s.target_accuracy for _, s, _ in entries if s.target_accuracy is not None]
    style.side_legend(axes, [*shown, *target_lines(axes, targets)])
    _frame(axes, curves, targets, top=math.inf if by_loss else 1.01)


def _line(axes: Any, number: int, name: str, summary: Summary, points: Points) -> Any:
    """Draws the curve and, where it reaches the target, a mark; returns what stands for both in the legend."""
    from matplotlib.lines import Line2D

    look = {**style.look(number), "linewidth": 2.4}
    mark = {**style.mark(number), "markersize": 11, "markeredgewidth": 1.2}
    dots: dict[str, Any] = {"marker": "."} if 0 < len(points) <= DOTTED_MAX else {}
    axes.plot([at for at, _ in points], [height for _, height in points], **look, **dots, label=name)
    label = f"{name}  {_short_result(summary)}"
    if summary.seconds_to_target is None:
        return Line2D([], [], **look, label=label)
    hit = next((height for at, height in points if at >= summary.seconds_to_target), summary.target_accuracy)
    axes.plot([summary.seconds_to_target], [hit], **look, **mark, zorder=5)
    return Line2D([], [], **look, **mark, label=label)


def _short_result(summary: Summary) -> str:
    """Returns the same for the legend."""
    if summary.seconds_to_target is not None:
        return seconds_text(summary.seconds_to_target)
    if summary.test_accuracy is None:
        return "not evaluated" if summary.test_loss is None else loss_text(summary.test_loss)
    return ("missed, " if summary.target_accuracy is not None else "") + accuracy_text(summary.test_accuracy)


def _frame(axes: Any, curves: Sequence[tuple[str, Summary, Points]], targets: Sequence[float], *, top: float) -> None:
    """Sets the ranges of the axes. `top`: no curve goes higher."""
    seen = [height for _, _, points in curves for _, height in points if math.isfinite(height)]
    axes.set_ylim(heights(seen, targets, top))
    if not seen:
        look: dict[str, Any] = {"fontsize": TYPE["title"], "color": FAINT, "ha": "center", "va": "center"}
        axes.text(0.5, 0.4, "no evaluation was recorded", transform=axes.transAxes, **look)
    ends = [max([summary.seconds, *(at for at, _ in points)]) for _, summary, points in curves]
    axes.set_xlim(0, 1.02 * max([*ends, 1e-9]))


# ---- where the time went ---------------------------------------------------------------------------------------
def _rows_of_workers(axes: Any, workers: Sequence[WorkerSummary]) -> None:
    """Draws where each worker's time went, one row a worker."""
    style.plain_axes(axes, grid="x")
    places = list(range(len(workers)))
    style.stacked(axes, places, [w.shares for w in workers], 0.78, across=True)
    axes.set_xlim(0, 100)
    axes.set_ylim(len(workers) - 0.5, -0.5)
    axes.set_xlabel("percent of each worker's time", fontsize=TYPE["label"], color=INK)
    axes.tick_params(axis="y", length=0)
    if len(workers) <= ROWS_LABELLED_MAX:
        axes.set_yticks(places, [_who(worker) for worker in workers])
        _percentages(axes, workers)
    else:
        every = -(-len(workers) // ROWS_LABELLED_MAX)
        axes.set_yticks(places[::every], [str(w.rank) for w in workers[::every]])
        axes.set_ylabel("worker", fontsize=TYPE["label"], color=INK)
    style.activity_legend(axes)


def _who(worker: WorkerSummary) -> str:
    """Returns rank, device and slowdown of a worker."""
    slow = f" ×{worker.slowdown:.3g}" if worker.slowdown != 1 else ""
    return f"{worker.rank}  {worker.device}{slow}"


def _percentages(axes: Any, workers: Sequence[WorkerSummary]) -> None:
    """Writes the percentages into the bars."""
    for place, worker in enumerate(workers):
        begin = 0.0
        for activity in style.ACTIVITIES:
            share = getattr(worker.shares, activity)
            if share >= NARROWEST_LABELLED:
                look: dict[str, Any] = {"fontsize": TYPE["note"], "color": INK if activity == "waiting" else "white"}
                axes.text(100 * (begin + share / 2), place, percent(share), ha="center", va="center", **look)
            begin += share


def groups_of_workers(axes: Any, groups: Sequence[tuple[str, Sequence[WorkerSummary]]]) -> None:
    """Draws a bar for each worker, those of a group side by side above its name."""
    style.plain_axes(axes, grid="y")
    begin, middles, places, workers = 0.0, [], [], []
    for _, members in groups:
        ranked = sorted(members, key=lambda worker: worker.rank)
        middles.append(begin + (len(ranked) - 1) / 2)
        places += [begin + i for i in range(len(ranked))]
        workers += ranked
        begin += len(ranked) + max(0.6, 0.15 * len(ranked))
    style.stacked(axes, places, [w.shares for w in workers], 0.84, across=False)
    room = max(0.7, (12 - begin) / 2)  # a single bar as wide as the figure would look like a mistake
    axes.set_xlim(-room, max(places, default=0) + room)
    axes.set_ylim(0, 100)
    axes.set_ylabel("percent of each worker's time", fontsize=TYPE["label"], color=INK)
    axes.tick_params(axis="x", length=0)
    names, look = _fitted([name for name, _ in groups])
    axes.set_xticks(middles, names, fontweight="bold", **look)
    if len(places) <= BARS_LABELLED_MAX:
        axes.tick_params(axis="x", pad=22)
        axes.xaxis.remove_overlapping_locs = False  # the middle worker of an odd number stands under its group's name
        axes.set_xticks(places, [str(w.rank) for w in workers], minor=True, fontsize=TYPE["tick"], color=FAINT)
        axes.tick_params(axis="x", which="minor", length=0)
    style.activity_legend(axes)


def _fitted(names: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Returns group names that do not overlap: on one line, else a word a line, else small and slanted; and how to draw
    them."""
    for shape in (names, [name.replace(" ", "\n") for name in names]):
        widest = max((len(line) for name in shape for line in name.split("\n")), default=0)
        if len(names) * (widest + 2) <= NAMES_COLUMNS:
            return shape, {"fontsize": TYPE["label"]}
    return names, {"fontsize": 10, "rotation": 25, "ha": "right", "rotation_mode": "anchor"}
