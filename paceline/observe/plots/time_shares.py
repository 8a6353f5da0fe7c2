"""Draws where the workers' time went: a bar for each; of very many, how their computing is spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.observe.plots import style
from paceline.observe.plots.digest import RunDigest
from paceline.observe.plots.run_figures import groups_of_workers
from paceline.observe.plots.style import INK, TYPE

BARS_MAX = 160
"""Workers of all groups up to which each has a bar."""


def computing(entries: Sequence[RunDigest]) -> Any | None:
    """Draws the first run of each group: shares of a worker vary little between seeds."""
    groups = [(entry.name, entry.group.first.workers) for entry in entries if entry.group.first.workers]
    if not groups:
        return None
    if sum(len(workers) for _, workers in groups) > BARS_MAX:
        return _spread(entries)
    figure, [axes] = style.empty([1.0], inches=(style.WIDE, 4.4))
    groups_of_workers(axes, [(style.words(name), workers) for name, workers in groups])
    return figure


def _spread(entries: Sequence[RunDigest]) -> Any:
    """Draws, for each group, the workers' share of computing from the lowest to the highest."""
    figure, [axes] = style.empty([1.0], inches=(style.WIDE, 4.8))
    style.plain_axes(axes, grid="y")
    labels = []
    for entry in entries:
        ranked = sorted(100 * worker.shares.computing for worker in entry.group.first.workers)
        if ranked:
            places = [100 * (n + 0.5) / len(ranked) for n in range(len(ranked))]
            axes.plot(places, ranked, **style.look(entry.look), linewidth=2.4)
            labels.append(((places[-1], ranked[-1]), entry))
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 102)
    axes.set_ylabel("percent of a worker's time computing", fontsize=TYPE["label"], color=INK)
    axes.set_xlabel("percent of the workers, those that compute least first", fontsize=TYPE["label"], color=INK)
    style.end_labels(axes, labels)
    return figure
