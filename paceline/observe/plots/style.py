"""Decides how every figure looks: size, type, colours, axes.

It uses matplotlib's objects only: its global state is left alone, so a user's own figures are not affected.
"""

from __future__ import annotations

import importlib
import io
import itertools
import os
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.observe.runs.summary import TimeShares

INCHES = (14.0, 9.0)
"""Width and height of a figure."""
DPI = 100
INK = "#222222"
"""Colour of text and axes."""
FAINT = "#767676"
"""Colour of what is there for reference only."""
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""The palette of Okabe and Ito, safe for the colour-blind; yellow, too faint for a line, is replaced."""
SCHEMES = (
    *("bsp", "asp", "ssp", "gsp", "esync", "localsgd", "diloco", "adpsgd"),
    *("lbbsp", "dcasgd", "dssp", "ksync", "asyncdiloco", "easgd", "slowmo", "gosgd"),
    *("partial", "weedout", "hybrid", "eamsgd", "postlocal", "sgp", "decoupled", "sparseloco"),
    *("muloco", "noloco", "tiers", "prague", "halos"),
)
"""By their place here schemes have colour, dashes and mark, the same in every figure: eight colours a row.

Those that are compared most often have colours of their own; each shares its colour with others of another kind.
"""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Marks of curves, so that colours are not all that tells them apart."""
ACTIVITIES = {"computing": "#009E73", "communicating": "#0072B2", "waiting": "#F0A63A"}
NOTE_COLUMNS = 140
"""Characters of a line below a title."""
TYPE = {"title": 17, "label": 13, "tick": 12, "note": 12, "small": 10}
"""Sizes of text, in points."""
WIDE = 11.0
"""Inches of figures that stand on a page."""
ENDS_LABELLED_MAX = 16
"""Lines whose ends have a name."""


def import_beside() -> None:
    """Begins to import matplotlib in a thread, which takes a third of a second, and returns at once.

    A run calls it while it waits for other processes, so that the figure at its end costs less. Whoever needs
    matplotlib before the thread is through waits for the lock that Python holds for an import.
    """
    threading.Thread(target=importlib.import_module, args=("matplotlib.figure",), name="figures", daemon=True).start()


def empty(rows: Sequence[float], inches: tuple[float, float] = INCHES) -> tuple[Any, list[Any]]:
    """Makes a figure and its axes, one above the other, with `rows` as their relative heights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, dpi=DPI, layout="constrained", facecolor="white")
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.15, h_pad=0.15, hspace=0.06)
    grid = figure.add_gridspec(len(rows), 1, height_ratios=list(rows))
    return figure, [figure.add_subplot(grid[row, 0]) for row in range(len(rows))]


def beside(panels: int) -> tuple[Any, list[Any]]:
    """Makes a figure and its axes, side by side, with one scale upwards."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDE if panels < 3 else 5 * panels, 5.0), dpi=DPI, layout="constrained", facecolor="white")
    return figure, list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])


def looks(schemes: Sequence[str]) -> list[int]:
    """Returns, for each line or bar of a figure, the number of its look, for `look`.

    A scheme's first one is that of the table; of further ones, such as the same scheme under other parameters, and of
    schemes that the table lacks, each has a look that nobody else in the figure has.
    """
    taken = {SCHEMES.index(scheme) for scheme in schemes if scheme in SCHEMES}
    free = (number for number in itertools.count() if number not in taken)
    seen: set[str] = set()
    found = []
    for scheme in schemes:
        known = scheme in SCHEMES and scheme not in seen
        found.append(SCHEMES.index(scheme) if known else next(free))
        seen.add(scheme)
    return found


def look(number: int) -> dict[str, Any]:
    """Returns colour and dashes of a line; colours come round again with other dashes."""
    dashes = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 2, 2)))
    return {"color": LINES[number % len(LINES)], "linestyle": dashes[number // len(LINES) % len(dashes)]}


def mark(number: int) -> dict[str, Any]:
    """Returns the mark of a line: schemes that share a colour have different marks."""
    row, column = divmod(number, len(LINES))
    return {"marker": MARKS[(column + 3 * row) % len(MARKS)], "markeredgecolor": "white"}


def words(text: str) -> str:
    """Returns `text` as matplotlib draws it unchanged: a dollar sign would begin a formula."""
    return text.replace("$", r"\$")


def end_labels(axes: Any, ends: Sequence[tuple[tuple[float, float], Any]]) -> None:
    """Draws a mark where each line ends, and the same mark with its name to the right, in the order of the ends.

    `ends`: points, and what has a name and a look. The mark says which is which where colours do not.
    """
    from matplotlib.transforms import offset_copy

    low, high = axes.get_ylim()
    ranked = sorted(ends, key=lambda end: end[0][1])[-ENDS_LABELLED_MAX:]
    apart = 0.052 * (5.0 / axes.figure.get_size_inches()[1])
    heights = spread_out([(y - low) / ((high - low) or 1.0) for (_, y), _ in ranked], apart)
    for ((x, y), entry), height in zip(ranked, heights, strict=True):
        colour = look(entry.look)["color"]
        sign = {**mark(entry.look), "color": colour}
        axes.plot([x], [y], **sign, markersize=9, zorder=5, clip_on=False)
        aside = offset_copy(axes.transAxes, axes.figure, x=14, units="points")
        axes.plot([1.0], [height], **sign, markersize=8, transform=aside, clip_on=False)
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center"}
        type_: dict[str, Any] = {"fontsize": TYPE["note"], "fontweight": "bold", "color": colour}
        axes.annotate(words(entry.name), (1.0, height), xytext=(23, 0), **place, **type_)


def spread_out(places: Sequence[float], apart: float) -> list[float]:
    """Returns increasing places, moved upwards as little as keeps them `apart`, and down again where they pass the top
    (1.0)."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + apart) if moved else place)
    limit = 1.0
    for n in reversed(range(len(moved))):
        moved[n] = min(moved[n], limit)
        limit = moved[n] - apart
    return moved


def legend_above(axes: Any) -> None:
    """Draws a legend above the axes."""
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2, "frameon": False}
    axes.legend(**place, ncols=4, fontsize=TYPE["note"], labelcolor=INK, handlelength=1.0)


def plain_axes(axes: Any, *, grid: str) -> None:
    """Draws thin, quiet axes; `grid` is the axis, x or y, whose values are to be read off."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#AAAAAA")
    axes.tick_params(labelsize=TYPE["tick"], color="#AAAAAA", labelcolor=INK)
    axes.grid(axis=grid, color="#E6E6E6", linewidth=1)
    axes.set_axisbelow(True)


def title(axes: Any, text: str, note: str) -> None:
    """Draws a title, and `note` below it, which may run on over what is to the right of the axes."""
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
    """Draws a legend to the right of the axes, where no curve can run under it."""
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
    """Draws a legend of the activities beside the axes."""
    from matplotlib.patches import Patch

    side_legend(axes, [Patch(color=colour, label=name) for name, colour in ACTIVITIES.items()])


def stacked(axes: Any, at: Sequence[float], shares: Sequence[TimeShares], thickness: float, *, across: bool) -> None:
    """Draws one bar per place in `at`, in percent; `across` draws them from left to right instead of upwards."""
    begin = [0.0] * len(at)
    for name, colour in ACTIVITIES.items():
        long = [100 * getattr(share, name) for share in shares]
        if across:
            axes.barh(at, long, thickness, left=begin, color=colour, label=name)
        else:
            axes.bar(at, long, thickness, bottom=begin, color=colour, label=name)
        begin = [a + b for a, b in zip(begin, long, strict=True)]


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Saves as a PNG, or an SVG by the name's end. A reader sees the old figure or the new one, never half of one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.suffix == ".svg":
            draft.write_text(svg(figure), encoding="utf-8", errors="backslashreplace")
        else:
            _save_png(figure, draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _save_png(figure: Any, path: Path) -> None:
    """Saves a figure as PNG. It is laid out here: matplotlib would draw all of it once more for that."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    try:
        figure.savefig(path, format="png", dpi=DPI)
    finally:
        if engine is not None:
            figure.set_layout_engine(engine)


def svg(figure: Any, **options: Any) -> str:
    """With its words as words, to be found and read aloud; the same figure gives the same text."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "paceline"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, **options)
    return text.getvalue()
