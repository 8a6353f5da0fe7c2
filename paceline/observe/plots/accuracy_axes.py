"""Draws axes with test accuracy upwards, or a loss, for one run, for a race and for several seeds alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.observe.plots import style
from paceline.observe.plots.style import FAINT, INK, TYPE

ROOM = 0.05
"""Part of the whole scale that stays free above and below all curves, at least."""
ROOM_OF_RANGE = 0.08
"""Part of what the curves span that stays free, where that is more."""


def accuracy_axes(axes: Any, label: str) -> None:
    """Gives `axes` a grid and `label` for what goes to the right."""
    style.plain_axes(axes, grid="y")
    axes.set_xlabel(label, fontsize=TYPE["label"], color=INK)


def name_upward(axes: Any, label: str = "test accuracy") -> None:
    """Names the upward axis, which panels side by side share."""
    axes.set_ylabel(label, fontsize=TYPE["label"], color=INK)


def heights(values: Iterable[float], targets: Iterable[float], top: float = 1.01) -> tuple[float, float]:
    """Returns a range from a little below all curves and targets to a little above them, at most to `top`.

    Without any value it is the whole scale of accuracies.
    """
    values = list(values)
    if not values:
        return 0.0, 1.01
    seen = [*values, *targets]
    room = max(ROOM, ROOM_OF_RANGE * (max(seen) - min(seen)))
    return max(-0.01, min(seen) - room), min(top, max(seen) + room)


def target_lines(axes: Any, targets: Iterable[float]) -> Sequence[Any]:
    """Draws a dashed line at each target. Returns them, with labels for a legend."""
    dashes: dict[str, Any] = {"color": FAINT, "linestyle": (0, (5, 4)), "linewidth": 1.5}
    return [axes.axhline(target, **dashes, label=f"target {target:g}") for target in sorted(set(targets))]


def standalone_line(axes: Any, accuracy: float) -> None:
    """Draws a dotted line, with its name, at the accuracy that one worker reaches alone, as ESync's figures have it."""
    axes.axhline(accuracy, color=FAINT, linestyle=(0, (1, 2)), linewidth=1.5)
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(f"alone {accuracy:.3g}", (0, accuracy), xytext=(3, 3), **where, fontsize=TYPE["small"], color=FAINT)
