"""Says which scheme won, by how much, and why, in a table and a sentence made of the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.observe.formatting.columns import columns
from paceline.observe.formatting.number_format import (
    accuracy_text,
    count_text,
    loss_text,
    megabytes,
    percent,
    seconds_text,
)
from paceline.observe.runs.summary import TARGET_LOSS, Summary

if TYPE_CHECKING:
    from rich.console import RenderableType

MEASURE = "acc"
"""The name of the column with accuracies; `loss` takes its place where nothing but losses was reported."""
GOODPUT = "good"
"""The name of the column with the goodput, the share of the workers' capacity that is in the model."""
HEAD = ("scheme", "target", "times", MEASURE, "smp", "smp/s", "wait", GOODPUT, "stale", "MB", "ended")
"""The headings of the table."""
WINNER = "*"
"""The mark of the scheme that won."""


def labels(summaries: Sequence[Summary]) -> list[str]:
    """Returns the scheme's name of each run; where one comes twice, with the parameters that differ, or else the
    seed."""
    return [_label(summary, [s for s in summaries if s.scheme == summary.scheme]) for summary in summaries]


def _label(summary: Summary, namesakes: Sequence[Summary]) -> str:
    """Returns the label of one run among those of the same scheme."""
    if len(namesakes) == 1:
        return summary.scheme
    differing = [
        f"{name}={value}"
        for name, value in summary.parameters.items()
        if any(other.parameters.get(name) != value for other in namesakes)
    ]
    if len({other.seed for other in namesakes}) > 1:
        differing.append(f"seed={summary.seed}")
    if not differing:
        differing.append(f"#{next(i for i, other in enumerate(namesakes, start=1) if other is summary)}")
    return " ".join([summary.scheme, *differing])


def ranking(summaries: Sequence[Summary]) -> list[Summary]:
    """Returns the best first: by time to target, then, for those that missed it, by accuracy, then by time.

    Where scripts have reported losses only, the loss takes the accuracy's place.
    """
    by_loss = has_losses_only(summaries)
    return sorted(
        summaries,
        key=lambda s: (
            math.inf if s.seconds_to_target is None else s.seconds_to_target,
            -(s.test_accuracy if s.test_accuracy is not None else -1.0),
            s.test_loss if by_loss and s.test_loss is not None else math.inf,
            s.seconds,
        ),
    )


def has_losses_only(summaries: Sequence[Summary]) -> bool:
    """Returns True if nobody measured an accuracy, and somebody a loss."""
    if any(s.test_accuracy is not None for s in summaries):
        return False
    return any(s.test_loss is not None for s in summaries)


def head(summaries: Sequence[Summary]) -> tuple[str, ...]:
    """Returns the names of the columns; that of the goodput only where it is known of a run."""
    known = any(s.goodput is not None for s in summaries)
    names = [name for name in HEAD if known or name != GOODPUT]
    return tuple("loss" if has_losses_only(summaries) and name == MEASURE else name for name in names)


def baseline(summaries: Sequence[Summary]) -> Summary:
    """Returns what the others are compared with: BSP, or the first that was run."""
    return next((s for s in summaries if s.scheme == "bsp"), summaries[0])


def speedup(summary: Summary, reference: Summary) -> float | None:
    """Returns how many times sooner than `reference` it reached the target, or None when either did not."""
    if not summary.seconds_to_target or reference.seconds_to_target is None:
        return None
    return reference.seconds_to_target / summary.seconds_to_target


def race_table(summaries: Sequence[Summary]) -> RenderableType:
    """Returns the table for a terminal; `summaries` in the order in which the schemes were run."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="dim")
    names = head(summaries)
    for index, name in enumerate(names):
        last = index == len(names) - 1
        table.add_column(
            Text(name),
            justify="left" if index == 0 or last else "right",
            no_wrap=not last,
            overflow="fold" if last else "ellipsis",
        )
    for cells in _rows(summaries):
        table.add_row(*(Text(cell) for cell in cells), style="bold green" if cells[0].startswith(WINNER) else "")
    return Group(table, Text(), Text(why(summaries)))


def race_text(summaries: Sequence[Summary]) -> str:
    """Returns the same for a log file: columns of plain text and the sentence."""
    return "\n".join([columns(head(summaries), _rows(summaries)), "", why(summaries)])


def _rows(summaries: Sequence[Summary]) -> list[tuple[str, ...]]:
    """Returns the cells of each run, the winner first."""
    if not summaries:
        return []
    reference = baseline(summaries)
    names = {id(s): name for s, name in zip(summaries, labels(summaries), strict=True)}
    by_loss = has_losses_only(summaries)
    has_winner = len(summaries) > 1 and (by_loss or any(s.test_accuracy is not None for s in summaries))
    rows: list[tuple[str, ...]] = []
    shown = head(summaries)
    for place, s in enumerate(ranking(summaries)):
        times = speedup(s, reference)
        cells = (
            f"{WINNER if place == 0 and has_winner else ' '} {names[id(s)]}",
            "-" if s.target is None else _reached(s),
            "-" if times is None else f"{times:.1f}",
            loss_text(s.test_loss) if by_loss else accuracy_text(s.test_accuracy),
            count_text(s.samples),
            count_text(s.samples_per_second),
            percent(s.shares.waiting),
            *([] if GOODPUT not in shown else ["-" if s.goodput is None else percent(s.goodput)]),
            "-" if s.staleness_mean is None else f"{s.staleness_mean:.1f}",
            megabytes(s.bytes_up + s.bytes_down),
            "target" if s.reason in ("target accuracy", TARGET_LOSS) else s.reason,
        )
        rows.append(cells)
    return rows


def _reached(s: Summary) -> str:
    """Returns the time to the target, or `missed`."""
    return "missed" if s.seconds_to_target is None else seconds_text(s.seconds_to_target)


def why(summaries: Sequence[Summary], called: Sequence[str] = ()) -> str:
    """Returns who won and what made the difference, each `called` by its name, or else by its scheme; for example:

    esync reached 0.9 in 4.1 s, 7.3 times as fast as bsp: its workers spent 6% of their time waiting, under bsp 71%.
    """
    if not summaries:
        return "Nothing was run."
    names = {id(s): name for s, name in zip(summaries, called or labels(summaries), strict=True)}
    order = ranking(summaries)
    winner = order[0]
    if winner.seconds_to_target is None:
        return _nobody(winner, names[id(winner)], len(summaries))
    reached = f"{names[id(winner)]} reached {winner.target} in {seconds_text(winner.seconds_to_target)}"
    if len(order) == 1:
        return f"{reached}."
    other = baseline(summaries)
    other = order[1] if other is winner else other
    name = names[id(other)]
    times = speedup(winner, other)
    if times is None:
        return f"{reached}; {name} did not within {seconds_text(other.seconds)}: {_cause(winner, other, name)}."
    if times < 1.05:
        return f"{reached}, about as fast as {name}, the next ({_reached(other)})."
    return f"{reached}, {times:.1f} times as fast as {name}: {_cause(winner, other, name)}."


def _nobody(best: Summary, name: str, runs: int) -> str:
    """Returns the sentence for runs of which none reached a target."""
    accuracy = accuracy_text(best.test_accuracy)
    if best.test_accuracy is None and best.test_loss is not None:
        loss = loss_text(best.test_loss)
        if best.target is not None and runs > 1:
            return f"No scheme reached {best.target}; {name} came closest with {loss}."
        if best.target is not None:
            return f"{name} did not reach {best.target}; it came to {loss}."
        ended = f"loss {loss}" if runs == 1 else f"the lowest loss, {loss},"
        return f"{name} ended with {ended} after {seconds_text(best.seconds)}."
    if best.test_accuracy is None:
        return "No accuracy was measured, so there is no winner."
    if best.target_accuracy is None and runs == 1:
        return f"{name} ended with accuracy {accuracy} after {seconds_text(best.seconds)}."
    if best.target_accuracy is None:
        return f"{name} ended with the best accuracy, {accuracy}, after {seconds_text(best.seconds)}."
    if runs == 1:
        return f"{name} did not reach {best.target_accuracy:g}; it came to {accuracy}."
    return f"No scheme reached {best.target_accuracy:g}; {name} came closest with {accuracy}."


def _cause(winner: Summary, other: Summary, name: str) -> str:
    """Returns what made more of the difference: samples needed, or samples per second.

    Time to the target is the first over the second, so the larger of the two ratios explains more.
    """
    pace = winner.samples_per_second / other.samples_per_second if other.samples_per_second else math.inf
    needed = [s.samples_per_second * (s.seconds_to_target or s.seconds) for s in (winner, other)]
    thrift = needed[1] / needed[0] if needed[0] else 1.0
    if pace < thrift:
        return f"it needed {count_text(needed[0])} samples, {name} {_more(other)}{count_text(needed[1])}"
    waiting = (winner.shares.waiting, other.shares.waiting)
    if waiting[0] < waiting[1] - 0.01:
        return f"its workers spent {percent(waiting[0])} of their time waiting, under {name} {percent(waiting[1])}"
    rates = [count_text(s.samples_per_second) for s in (winner, other)]
    return f"its workers got through {rates[0]} samples/s, under {name} through {rates[1]}"


def _more(other: Summary) -> str:
    """Returns what stands before a ratio that is a bound: the other scheme never reached the target."""
    return "" if other.seconds_to_target is not None else "more than "
