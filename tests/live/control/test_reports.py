"""What a process tells the coordinator of itself."""

from __future__ import annotations

import pytest

from paceline.core.trace import Applied, Decided, Ended, Record, Span, to_row
from paceline.live.control.reports import line_of, records_of


@pytest.mark.parametrize(
    "record",
    [
        Span(at=0.1, rank=3, activity="computing", seconds=0.1, steps=1, samples=32, exchanges=1),
        Applied(at=1.0, shard=0, ranks=(0, 2), version=1, staleness=0, weight=0.5, samples=4),
        Decided(at=1.0, party="server 0", rank=0, verdict="wait", reason='for "1"\n', whom=(1,)),
        Ended(at=2.0, reason="steps"),
    ],
)
def test_a_record_becomes_one_line_and_is_the_same_afterwards(record: Record) -> None:
    line = line_of(to_row(record))
    assert b"\n" not in line
    assert list(records_of(line.decode())) == [record]
