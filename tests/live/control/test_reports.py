"""What a process tells the coordinator of itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import server, worker
from paceline.core.trace import Applied, Decided, Ended, Record, Span, to_row
from paceline.live.control import reports
from paceline.live.control.reports import Reports, line_of, records_of, stretch_of
from paceline.live.protocol.transport import Envelope


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


class Timers:
    """A transport that only keeps the seconds of the timers that are set."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def call_later(self, seconds: float, call: object) -> None:
        self.waits.append(seconds)


def wait_between_reports(workers: int, dead_after_s: float) -> float:
    """Returns the seconds until the first report in a run of so many workers."""
    timers = Timers()
    of_party = Reports(timers, worker(1), threading.Event())  # type: ignore[arg-type]  # a part of a transport
    of_party.stretch(workers, dead_after_s)
    of_party.begin()
    return timers.waits[0]


def test_reports_of_many_workers_do_not_become_more_than_those_of_a_few() -> None:
    few = wait_between_reports(8, 60.0)
    assert few == wait_between_reports(reports.WORKERS_AT_FULL_RATE, 60.0) == reports.REPORT_SECONDS
    for workers in (1_000, 10_000):
        wait = wait_between_reports(workers, 60.0)
        assert workers / wait <= max(workers / 20.0, reports.WORKERS_AT_FULL_RATE / reports.REPORT_SECONDS)
    assert stretch_of(1_280) == 10.0


@pytest.mark.parametrize("workers", [1, 1_000, 100_000])
@pytest.mark.parametrize("dead_after_s", [1.0, 5.0, 60.0])
def test_a_party_reports_several_times_before_its_silence_is_a_loss(workers: int, dead_after_s: float) -> None:
    assert 3 * wait_between_reports(workers, dead_after_s) <= dead_after_s


class Mail(Timers):
    """Keeps the messages that are sent, too."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[object] = []

    def send(self, to: object, envelope: Envelope) -> None:
        self.sent.append(envelope.message)


def test_what_became_of_leased_samples_is_told_once_the_copy_knows_it_and_at_once_at_the_end() -> None:
    mail, copied = Mail(), list[Callable[[], None]]()
    first = Reports(mail, server(0), threading.Event(), after_replicated=copied.append)  # type: ignore[arg-type]
    first.settle(1, "late", ((0, 0, 4),))
    first.tell_settled_when_copied(fenced := control.Fenced(rank=2, incarnation=0, pending=()))
    first.settle(1, "applied", ((0, 4, 8),))
    first.tell_settled_when_copied()
    assert mail.sent == []
    late = control.SamplesResolved(contributions=((1, "late", ((0, 0, 4),)),))
    applied = control.SamplesResolved(contributions=((1, "applied", ((0, 4, 8),)),))
    copied[0]()
    assert mail.sent == [late, fenced]
    first.flush()
    copied[1]()
    assert mail.sent == [late, fenced, applied]
