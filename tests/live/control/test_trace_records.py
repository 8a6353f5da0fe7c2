"""Records that a worker may write into the trace of the run."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination.party import worker
from paceline.core.errors import ProtocolError
from paceline.core.trace import (
    CpuUsed,
    Decided,
    Evaluated,
    LinkTraffic,
    LostWork,
    ResourceUse,
    Span,
    in_parts_of,
    to_row,
)
from paceline.live.control.reports import line_of
from paceline.live.control.trace_records import records_from


def lines(*records: Any) -> str:
    return b"\n".join(line_of(to_row(record)) for record in records).decode()


SPAN = Span(at=1.0, rank=1, activity="computing", seconds=0.5)


def test_a_worker_tells_of_its_own_time_and_decisions() -> None:
    told = [
        SPAN,
        LostWork(at=1.0, party="worker 0", rank=1, steps=2, samples=16, group=0),
        Decided(at=1.0, party="worker 1", rank=1, verdict="wait", reason="why"),
        Decided(at=1.0, party="worker 1", rank=2, verdict="wait", reason="why"),
        Decided(at=1.0, party="worker 1", rank=1, verdict=in_parts_of(48), reason="why"),
        ResourceUse(at=1.0, party="worker 1", memory_bytes=1 << 40, cores=1.5),
        LinkTraffic(at=1.0, party="worker 1", other="server 0", sent=1, received=2, seconds=2.0),
        CpuUsed(at=1.0, party="worker 1", seconds=0.25, cores=2),
    ]
    assert list(records_from(worker(1), lines(*told))) == told


@pytest.mark.parametrize(
    "said",
    [
        "nonsense",
        "[]",
        "[7]",
        '["span"]',
        "[" * 100_000,
        lines(Span(at=1.0, rank=2, activity="computing", seconds=0.5)),
        lines(LostWork(at=1.0, party="worker 1", rank=2, steps=2, samples=16)),
        lines(Decided(at=1.0, party="worker 1", rank=2, verdict=in_parts_of(1), reason="why")),
        lines(CpuUsed(at=1.0, party="worker 2", seconds=0.25, cores=2)),
        lines(CpuUsed(at=1.0, party="worker 1", seconds=1e300, cores=2)),
        lines(ResourceUse(at=1.0, party="worker 2", memory_bytes=1, cores=1.0)),
        lines(LinkTraffic(at=1.0, party="server 0", other="worker 1", sent=1, received=1, seconds=1.0)),
        lines(Evaluated(at=1.0, accuracy=1.0, loss=0.0, samples=1, seconds=0.0)),
        lines(Span(at=1.0, rank=1, activity="computing", seconds=1e300)),
        '["span",NaN,1,"computing",1,0,0,0,0,0]',
        '["span","x",1,"computing",1,0,0,0,0,0]',
    ],
)
def test_what_is_no_record_or_not_its_own_is_refused(said: str) -> None:
    with pytest.raises(ProtocolError):
        list(records_from(worker(1), said))
