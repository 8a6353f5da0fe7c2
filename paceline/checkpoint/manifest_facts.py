"""Checks what a manifest says of a run: every name that some code reads, its kind and its bounds.

Names that are not in the table may be anything. What depends on the configuration of the resumed run is checked in
`paceline.runtime.checkpointing.checkpoint_validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

COUNT_MAX = 2**48
"""The largest count of samples, steps or versions."""
RANK_MAX = 2**20
"""The highest number of a worker."""
EPOCH_MAX = 2**20
"""The highest number of an epoch."""
NUMBER_MAX = 2.0**1023
"""The largest magnitude of a number: half of what a float can hold, so that a sum of two is finite."""


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    """Returns a check for whole numbers from `low` to `high`; True and False are none."""
    return lambda v: type(v) is int and low <= v <= high


def number(v: Any) -> bool:
    """Returns True for a number within bounds; JSON that was read strictly has neither NaN nor infinity."""
    return type(v) in (int, float) and abs(v) <= NUMBER_MAX


def numbers(v: Any) -> bool:
    """Returns True for numbers by name."""
    return isinstance(v, dict) and all(map(number, v.values()))


def _optional(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a check that also accepts None."""
    return lambda v: v is None or of(v)


def _rows(*columns: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a list of lists, each as long as `columns`."""
    return lambda v: (
        isinstance(v, list)
        and all(
            isinstance(row, list)
            and len(row) == len(columns)
            and all(of(x) for of, x in zip(columns, row, strict=True))
            for row in v
        )
    )


def _flag(v: Any) -> bool:
    """Returns True for a truth value."""
    return type(v) is bool


def _accuracy(v: Any) -> bool:
    """Returns True for a number from 0 to 1."""
    return number(v) and 0.0 <= v <= 1.0


def _identity(v: Any) -> bool:
    """Returns True for what says which model and data a run had."""
    return isinstance(v, dict) and isinstance(v.get("data", []), list)


count, rank = _whole(0, COUNT_MAX), _whole(0, RANK_MAX)
_shift = _optional(_whole(-COUNT_MAX, COUNT_MAX))
_pieces = _rows(_whole(0, EPOCH_MAX), count, count)


def done(v: Any) -> bool:
    """Returns True for pieces of epochs, none of which is empty."""
    return _pieces(v) and all(start < stop for _, start, stop in v)


_of_shares = _rows(_whole(0, EPOCH_MAX), count, count, rank)


def pieces_of_shares(v: Any) -> bool:
    """Returns True for pieces of shares, none of which is empty."""
    return _of_shares(v) and all(start < stop for _, start, stop, _ in v)


_spans = _rows(count, count)


def shares(v: Any) -> bool:
    """Returns True for a place in each worker's share, and spans before it, in order, of samples that nobody has
    trained."""
    if not (isinstance(v, list) and all(isinstance(row, list) and len(row) == 2 for row in v)):
        return False
    return all(count(place) and _spans(spans) and _in_order(spans, place) for place, spans in v)


def _in_order(spans: list[list[int]], place: int) -> bool:
    ends = [end for span in spans for end in span]
    return all(a < b for a, b in spans) and ends == sorted(ends) and max(ends, default=0) <= place


TABLES: Mapping[str, Callable[[Any], bool]] = {
    "version": count,
    "clocks": _rows(rank, count),
    "seen": _rows(rank, count),
    "shift": _rows(rank, _shift),
}
"""The tables of a server, which has all of these or none. There may be `done`, alone too, and `samples_seen`."""


def _tables(v: Any) -> bool:
    """Returns True for the tables of a server: all of them or none, with places of samples that can be."""
    if v is None or v == {}:
        return True
    if not isinstance(v, dict):
        return False
    whole = v.keys() == {"done"} or all(name in v and of(v[name]) for name, of in TABLES.items())
    return whole and done(v.get("done", [])) and _samples_seen(v.get("samples_seen", 0))


def _samples_seen(v: Any) -> bool:
    """Returns True for a count of samples within bounds, which need not be whole."""
    return number(v) and 0 <= v <= COUNT_MAX


def kept(v: Any) -> bool:
    """Returns True for what a role may keep: numbers, texts, None, and lists of these, by name."""
    return isinstance(v, dict) and all(map(_plain, v.values()))


def _plain(v: Any) -> bool:
    """Returns True for a number, a text, None, or a list of these."""
    if isinstance(v, list):
        return all(map(_plain, v))
    return v is None or isinstance(v, str | bool) or number(v)


FACTS: Mapping[str, Callable[[Any], bool]] = {
    "samples": count,
    "version": count,
    "accuracy": _accuracy,
    "lead": rank,
    "lock_step": _flag,
    "aligned": _flag,
    "whole": _flag,
    "settled": _flag,
    "moved": _flag,
    "drawn": done,
    "shares": shares,
    "numbers": numbers,
    "tables": _tables,
    "kept": kept,
    "scales": numbers,
    "identity": _identity,
}


def check(facts: Any, kinds: Mapping[str, Callable[[Any], bool]] = FACTS) -> dict[str, Any]:
    """Returns `facts`. Raises ValueError, naming the first of `kinds` that is not what it has to be."""
    if not isinstance(facts, dict):
        raise ValueError("its facts are not a table of names and values")
    for name, fits in kinds.items():
        if name in facts and not fits(facts[name]):
            raise ValueError(f"{name!r} is of the wrong kind or beyond its bounds")
    return facts
