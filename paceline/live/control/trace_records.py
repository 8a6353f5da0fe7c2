"""Decodes and checks the trace records that a party sends to the coordinator.

A worker may send spans of its own time, what of its work was lost, its own decisions, and what it uses of its
machine, its cores and its links, with finite numbers. Records about the model (Applied, Evaluated, ...) are accepted
from servers and the evaluator only.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, get_type_hints

from paceline.core.coordination.party import Party
from paceline.core.errors import ProtocolError
from paceline.core.trace import FIELDS, IN_PARTS, CpuUsed, Decided, LinkTraffic, LostWork, Record, ResourceUse, Span
from paceline.core.validation.bounds import NUMBER_MAX
from paceline.live.control.reports import records_of


def records_from(src: Party, lines: str) -> Iterator[Record]:
    """Yields the records. Raises ProtocolError at a line that is no record, or not one that `src` may send."""
    records = records_of(lines)
    while True:
        try:
            record = next(records, None)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise ProtocolError(f"Records: a line is no record of the trace: {error!r:.200}") from None
        if record is None:
            return
        if src.kind == "worker":
            _check(src, record)
        yield record


def _check(src: Party, record: Record) -> None:
    """Raises ProtocolError for a record that is not the sender's to tell, or has a value of another kind."""
    own = isinstance(record, Span | LostWork) and record.rank == src.index
    own |= isinstance(record, CpuUsed | ResourceUse | LinkTraffic) and record.party == str(src)
    own |= isinstance(record, Decided) and (record.rank == src.index or not IN_PARTS.fullmatch(str(record.verdict)))
    if not own:
        raise ProtocolError(f"Records: {type(record).__name__} is not for {src} to tell")
    for name, kinds in _kinds(type(record)):  # type: ignore[arg-type]
        value = getattr(record, name)
        if not isinstance(value, kinds) or (isinstance(value, int | float) and not abs(value) <= NUMBER_MAX):
            raise ProtocolError(f"Records: {name} of {type(record).__name__} is {value!r:.60}")


@functools.cache
def _kinds(cls: type[Record]) -> tuple[tuple[str, Any], ...]:
    """Returns, for each field of a plain type, the types that its value may have after JSON."""
    hints = get_type_hints(cls)
    plain = [name for name in FIELDS[cls] if hints[name] in (int, float, str)]
    return tuple((name, (int, float) if hints[name] is float else hints[name]) for name in plain)
