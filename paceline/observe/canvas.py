"""How every figure looks: size, type, colours, axes. Objects only: matplotlib's global state is left alone."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.observe.summary import Shares

INCHES = (14.0, 9.0)
DPI = 100
INK = "#222222"
FAINT = "#767676"
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""Okabe and Ito's palette, safe for the colour-blind; yellow, too faint for a line, is replaced."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
ACTIVITIES = {"computing": "#009E73", "communicating": "#0072B2", "waiting": "#F0A63A"}
NOTE_COLUMNS = 140
TYPE = {"title": 17, "label": 13, "tick": 12, "note": 12}


def empty(rows: Sequence[float], inches: tuple[float, float] = INCHES) -> tuple[Any, list[Any]]:
    """A figure and its axes, one above the other, with `rows` as their relative heights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, dpi=DPI, layout="constrained", facecolor="white")
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.15, h_pad=0.15, hspace=0.06)
    grid = figure.add_gridspec(len(rows), 1, height_ratios=list(rows))
    return figure, [figure.add_subplot(grid[row, 0]) for row in range(len(rows))]


def plain_axes(axes: Any, *, grid: str) -> None:
    """Thin, quiet axes; `grid` is the axis, x or y, whose values are to be read off."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#AAAAAA")
    axes.tick_params(labelsize=TYPE["tick"], color="#AAAAAA", labelcolor=INK)
    axes.grid(axis=grid, color="#E6E6E6", linewidth=1)
    axes.set_axisbelow(True)


def title(axes: Any, text: str, note: str) -> None:
    """`note` may run on over what is to the right of the axes; only its height takes part in the layout."""
    lines = textwrap.wrap(note, NOTE_COLUMNS)
    axes.set_title(text, loc="left", fontsize=TYPE["title"], color=INK, fontweight="bold", pad=14 + 16 * len(lines))
    place: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "va": "bottom",
        "linespacing": 1.3,
    }
    below = axes.annotate("\n".join(lines), (0, 1), xytext=(0, 10), **place, fontsize=TYPE["note"], color=FAINT)
    below.set_in_layout(False)


def side_legend(axes: Any, handles: list[Any]) -> None:
    """To the right of the axes, where no curve can run under it."""
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        frameon=False,
        fontsize=TYPE["label"] if len(handles) <= 14 else 9,
        labelcolor=INK,
    )


def activity_legend(axes: Any) -> None:
    from matplotlib.patches import Patch

    side_legend(axes, [Patch(color=colour, label=name) for name, colour in ACTIVITIES.items()])


def stacked(axes: Any, at: Sequence[float], shares: Sequence[Shares], thickness: float, *, across: bool) -> None:
    """One bar per place in `at`, in percent; `across` draws them from left to right instead of upwards."""
    begin = [0.0] * len(at)
    for name, colour in ACTIVITIES.items():
        long = [100 * getattr(share, name) for share in shares]
        if across:
            axes.barh(at, long, thickness, left=begin, color=colour, label=name)
        else:
            axes.bar(at, long, thickness, bottom=begin, color=colour, label=name)
        begin = [a + b for a, b in zip(begin, long, strict=True)]


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """As a PNG; a figure looked at while it is drawn anew is the old or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        figure.savefig(draft, format="png", dpi=DPI)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
