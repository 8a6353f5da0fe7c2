"""Spans are runs of numbers of the model's vector, each named by where it begins and where it ends.

A gradient has *unused* spans: parameters that no forward pass of its mini-batches has used. torch gives them no
gradient (`grad` is None) and its optimizers skip them: no weight decay, no momentum, no step of Adam's counter. A
gradient of zero would not be the same.

    several mini-batches, several workers      unused is what none of them has used
    an update                                  leaves the unused spans as they are
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Span = tuple[int, int]
"""Where a run begins, and the place behind its last number."""
Spans = tuple[Span, ...]
"""In order; none touches the next."""


def merged(spans: Iterable[Span]) -> Spans:
    """Returns `spans`, which are in order, with those that touch merged and empty ones left out."""
    found: list[Span] = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def common(a: Spans, b: Spans) -> Spans:
    """Returns the spans that are in both. It makes one pass, because there may be many."""
    found: list[Span] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, stop = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < stop:
            found.append((start, stop))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def within(spans: Spans, start: int, stop: int, at: int = 0) -> Spans:
    """Returns the part of `spans` that lies in `start` to `stop`, moved so that `start` becomes `at`."""
    return tuple((a - start + at, b - start + at) for a, b in common(spans, ((start, stop),)))


def updated(update: Any, w: Any, g: Any, samples: int, unused: Spans) -> Any:
    """Returns `w` after `update` with the gradient `g`. Unused spans, if there are any, are passed on and stay
    unchanged.
    """
    return update(w, g, samples, unused) if unused else update(w, g, samples)
