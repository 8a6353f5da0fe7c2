"""Axes with test accuracy upwards are drawn here, for one run, for a race and for several seeds alike."""

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


def name_accuracy(axes: Any) -> None:
    """Names the upward axis, which panels side by side share."""
    axes.set_ylabel("test accuracy", fontsize=TYPE["label"], color=INK)


def heights(accuracies: Iterable[float], targets: Iterable[float]) -> tuple[float, float]:
    """Returns a range from a little below all curves and targets to a little above them; the whole scale for none."""
    accuracies = list(accuracies)
    if not accuracies:
        return 0.0, 1.01
    seen = [*accuracies, *targets]
    room = max(ROOM, ROOM_OF_RANGE * (max(seen) - min(seen)))
    return max(-0.01, min(seen) - room), min(1.01, max(seen) + room)


def target_lines(axes: Any, targets: Iterable[float]) -> Sequence[Any]:
    """Draws a dashed line at each target. Returns them, with labels for a legend."""
    dashes: dict[str, Any] = {"color": FAINT, "linestyle": (0, (5, 4)), "linewidth": 1.5}
    return [axes.axhline(target, **dashes, label=f"target {target:g}") for target in sorted(set(targets))]
