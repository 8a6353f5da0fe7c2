"""Draws how late contributions were: for each group the share of those that were 0, 1, 2, ... versions late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from paceline.observe.plots import style
from paceline.observe.plots.digest import RunDigest
from paceline.observe.plots.style import FAINT, INK, TYPE

BINS_MAX = 60
"""Bars of a row. Where staleness goes further, several versions share a bar."""


def staleness(entries: Sequence[RunDigest]) -> Any | None:
    """Draws a row for each group; returns None for schemes without servers, or without updates."""
    counted = [(entry, sum((d.staleness for d in entry.digests), Counter[int]())) for entry in entries]
    counted = [(entry, counts) for entry, counts in counted if counts]
    if not counted:
        return None
    high = max(max(counts) for _, counts in counted)
    width = -(-(high + 1) // BINS_MAX)
    figure, rows = style.empty([1.0] * len(counted), inches=(style.WIDE, 1.2 + 1.05 * len(counted)))
    for axes, (entry, counts) in zip(rows, counted, strict=True):
        _row(axes, entry, counts, width)
        axes.set_xlim(-0.8 * width, high + 0.8 * width)
        axes.tick_params(labelbottom=axes is rows[-1])
    rows[-1].set_xlabel("staleness in versions", fontsize=TYPE["label"], color=INK)
    return figure


def _row(axes: Any, entry: RunDigest, counts: Counter[int], width: int) -> None:
    """Draws one group's shares by staleness; `width`: versions in a bar."""
    style.plain_axes(axes, grid="x")
    total = counts.total()
    bins: Counter[int] = Counter()
    for late, count in counts.items():
        bins[late // width] += count
    shares = {b: 100 * count / total for b, count in sorted(bins.items())}
    middles = [b * width + (width - 1) / 2 for b in shares]
    axes.bar(middles, list(shares.values()), 0.86 * width, color=style.look(entry.look)["color"])
    mean = sum(late * count for late, count in counts.items()) / total
    axes.axvline(mean, color=INK, linewidth=1.2, linestyle=(0, (3, 2)))
    top = max(shares.values())
    axes.set_ylim(0, 1.15 * top)
    axes.set_yticks([0, top], ["0", f"{top:.0f}%"])
    axes.xaxis.get_major_locator().set_params(integer=True)
    place: dict[str, Any] = {"xycoords": "axes fraction", "va": "center"}
    axes.annotate(style.words(entry.name), (1.01, 0.62), **place, fontsize=TYPE["label"], color=INK)
    told = f"mean {mean:.1f}, largest {max(counts)}"
    axes.annotate(told, (1.01, 0.3), **place, fontsize=TYPE["note"], color=FAINT)
