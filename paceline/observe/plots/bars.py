"""Draws one number or two for each group as bars from left to right (target, throughput, traffic), with dots for
seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.observe.formatting.number_format import count_text, megabytes, seconds_text
from paceline.observe.plots import style
from paceline.observe.plots.digest import RunDigest
from paceline.observe.plots.style import FAINT, INK, TYPE
from paceline.observe.runs.seed_statistics import Spread, baseline, standings
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.comparison import rate

THICK = 0.62
"""Width of a bar, in units of the distance between two bars."""
UP, DOWN = "#0072B2", "#56B4E9"
"""Colour of the bytes that workers send; DOWN is that of the bytes that come back."""


def throughput(entries: Sequence[RunDigest]) -> Any | None:
    """Draws training samples per second. Dots are runs, lines one standard deviation."""
    figure, axes = _rows(len(entries))
    _bars(axes, entries, lambda s: s.samples_per_second, count_text)
    axes.set_xlabel("training samples a second, all workers together", fontsize=TYPE["label"], color=INK)
    return figure


def to_target(entries: Sequence[RunDigest]) -> Any | None:
    """Draws seconds to the target, and how many times sooner than the baseline; returns None where no run
    reached one."""
    order = [s for s in standings([entry.group for entry in entries]) if s.seconds_to_target]
    if not order:
        return None
    of = {id(entry.group): entry for entry in entries}
    reference = baseline([entry.group for entry in entries])
    figure, axes = _rows(len(order))
    told = {}
    for s in order:
        times = s.speedup.text(lambda x: f"{x:.1f}") if s.speedup else ""
        missed = len(s.group.runs) - s.reached
        sooner = "baseline" if s.group is reference else f"×{times}"
        told[s.name] = f"  {sooner}" + (f"  ({missed} of {len(s.group.runs)} missed it)" if missed else "")
    _bars(axes, [of[id(s.group)] for s in order], lambda s: s.seconds_to_target, seconds_text, told)
    axes.set_xlabel("seconds to the target accuracy", fontsize=TYPE["label"], color=INK)
    return figure


def traffic(entries: Sequence[RunDigest]) -> Any | None:
    """Draws megabytes per second in both directions; returns None where no bytes were counted."""
    measured = [e for e in entries if any(s.bytes_up or s.bytes_down for s in e.group.summaries)]
    if not measured:
        return None
    figure, axes = _rows(len(measured), tall=0.62)
    ways: tuple[tuple[str, str, float, Callable[[Summary], int]], ...] = (
        ("sent by the workers", UP, -0.2, lambda s: s.bytes_up),
        ("received by them", DOWN, 0.2, lambda s: s.bytes_down),
    )
    for name, colour, shift, count in ways:
        for place, entry in enumerate(measured):
            summaries = entry.group.summaries
            rates = [megabytes_a_second(rate(count(s), s)) for s in summaries]
            whole = Spread.of(count(s) for s in summaries)
            spread = Spread.of(rates) or Spread(0.0, 0.0, 1)
            end = f"{spread.text(lambda x: f'{x:.1f}')} MB/s, {megabytes(round(whole.mean if whole else 0))} MB in all"
            _bar(axes, place + shift, 0.36, colour, spread, rates, end, name if not place else "")
    _named(axes, measured)
    axes.set_xlabel("megabytes a second, measured, all workers together", fontsize=TYPE["label"], color=INK)
    style.legend_above(axes)
    return figure


def megabytes_a_second(bytes_a_second: float | None) -> float:
    """Returns 10^6 bytes per second; 0 for None."""
    return (bytes_a_second or 0.0) / 1e6


def _rows(count: int, tall: float = 0.48) -> tuple[Any, Any]:
    """Returns a figure and its axes with room for `count` rows, `tall` inches each."""
    figure, [axes] = style.empty([1.0], inches=(style.WIDE, 1.4 + tall * count))
    style.plain_axes(axes, grid="x")
    return figure, axes


def _bars(
    axes: Any,
    entries: Sequence[RunDigest],
    value: Callable[[Summary], float | None],
    shown: Callable[[float], str],
    told: dict[str, str] | None = None,
) -> None:
    """Draws a bar for each group: the mean of `value` over its runs.

    `shown` formats the mean, and `told` has a text for a group's end, by name.
    """
    for place, entry in enumerate(entries):
        values = [v for v in map(value, entry.group.summaries) if v is not None]
        spread = Spread.of(values) or Spread(0.0, 0.0, 1)
        end = spread.text(shown) + (told or {}).get(entry.name, "")
        _bar(axes, place, THICK, style.look(entry.look)["color"], spread, values, end)
    _named(axes, entries)


def _bar(
    axes: Any, at: float, thick: float, colour: str, spread: Spread, values: Sequence[float], end: str, name: str = ""
) -> None:
    """Draws one bar, with dots and a deviation where there are several runs, and the text `end` beside it."""
    axes.barh([at], [spread.mean], thick, color=colour, label=name or None)
    if spread.count > 1:
        axes.plot(values, [at] * len(values), "o", color=INK, markersize=3.5, alpha=0.7)
        axes.errorbar([spread.mean], [at], xerr=[spread.deviation], color=INK, linewidth=1.2, capsize=3)
    reach = max([spread.mean + spread.deviation, *values])
    place: dict[str, Any] = {"xytext": (7, 0), "textcoords": "offset points", "va": "center"}
    axes.annotate(end, (reach, at), **place, fontsize=TYPE["note"], color=INK)


def _named(axes: Any, entries: Sequence[RunDigest]) -> None:
    """Names the rows, and makes room for the texts at their ends."""
    axes.set_yticks(range(len(entries)), [style.words(entry.name) for entry in entries])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(entries) - 0.45, -0.55)
    axes.set_xlim(0, 1.38 * max(axes.get_xlim()[1], 1e-9))  # room for the words at the ends
    for spine in ("left",):
        axes.spines[spine].set_color(FAINT)
