"""A party reports to the coordinator every REPORT_SECONDS, from when training starts; in large runs less often.

    Progress         of a worker
    Records          the trace records noted since the last report; now and then with the cores used (`CpuUsed`)
    SamplesResolved  what became of leased samples (first server); sooner, after SETTLE_SECONDS
    Beat             when there is nothing else to report

What the process uses of its machine and its links is measured every USAGE_SECONDS on a thread of its own. In a run of
many workers both come less often (`Reports.stretch`), so that all parties together say no more than those of a few.

Reports double as heartbeats: `--dead-after` seconds without one and the coordinator declares the party lost. A server
can be busy with one update for longer than that, so a thread of its own sends Beats meanwhile, up to
UPDATE_SECONDS_MAX.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.effects import Data
from paceline.core.errors import PeerLost
from paceline.core.parties.lease_reports import ResolvedContributions
from paceline.core.trace import CpuUsed, Record, Row, from_row, to_row
from paceline.live.adaptive_spin import working_seconds
from paceline.live.host_info import cores
from paceline.live.protocol.transport import Envelope, Kind, Transport

REPORT_SECONDS = 0.25
"""Seconds between two reports of a party."""
MEANWHILE_SECONDS = 0.5
"""Seconds between two beats of a server that is busy with one update."""
UPDATE_SECONDS_MAX = 300.0  # that a server may be at one update before it counts as hung
USAGE_SECONDS = 2.0
"""Seconds between two measurements of what the process uses."""
WORKERS_AT_FULL_RATE = 128
"""Workers up to which a run's parties report every REPORT_SECONDS: 512 reports a second. A thousand processes of one
machine with two cores were seen to spend both on reports and measurements."""
REPORTS_BEFORE_DEAD = 3
"""Reports at least in the silence after which a party is declared lost, however many workers there are."""
RECORDS_BYTES = 32 * 1024
"""Bytes of trace records in one message; a frame's header holds twice that."""
CPU_SECONDS, CPU_GROWTH = 1.0, 1.25
"""The first record of the cores used comes after so many seconds, and each other one so many times as late as the one
before: they are few, and the last is near the end."""
SETTLE_SECONDS = 0.05
"""Seconds in which resolved contributions are gathered for one message."""


line_of: Callable[[Row], bytes] = msgspec.json.Encoder().encode
"""Encodes a row as JSON; each line of `control.Records` is one."""


def records_of(lines: str) -> Iterator[Record]:
    """Yields the records of these lines. Raises ValueError, KeyError or TypeError at a line that is none."""
    return (from_row(json.loads(line)) for line in lines.split("\n"))


def stretch_of(workers: int) -> float:
    """Returns how many times as long as usual a party waits between two reports in a run of so many workers."""
    return max(1.0, workers / WORKERS_AT_FULL_RATE)


class Reports:
    """Sends the reports of one party until `ended` is set."""

    def __init__(
        self,
        transport: Transport,
        me: Party,
        ended: threading.Event,
        now: Callable[[], float] = time.monotonic,
        after_replicated: Callable[[Callable[[], None]], None] = lambda act: act(),
    ) -> None:
        """`now` returns seconds since training started, by which records are dated. `after_replicated` calls what it is
        given once the copy of this server has its present state."""
        self._transport, self._me, self._ended, self._now = transport, me, ended, now
        self._after_replicated = after_replicated
        self._progress: Callable[[], control.Progress] | None = None
        self.usage: Callable[[], Iterable[Record]] | None = None  # measures what this process uses; set before `begin`
        self._report_s, self._usage_s = REPORT_SECONDS, USAGE_SECONDS
        self._rows: deque[Row] = deque()
        self._resolved, self._settling = ResolvedContributions(), threading.Lock()
        self._begun = False
        self._last_at = time.monotonic()
        self._flushing = threading.Lock()
        self._cpu_before = self._cpu_due = 0.0  # core seconds before training started; when the next record is due

    def stretch(self, workers: int, dead_after_s: float) -> None:
        """Reports less often in a run of many workers; before `begin`. Silence of `dead_after_s` counts as a loss."""
        by = stretch_of(workers)
        self._report_s = max(REPORT_SECONDS, min(by * REPORT_SECONDS, dead_after_s / REPORTS_BEFORE_DEAD))
        self._usage_s = by * USAGE_SECONDS

    def begin(self, progress: Callable[[], control.Progress] | None = None) -> None:
        """Starts to report by itself; a second call continues with another `progress`."""
        self._progress = progress
        if not self._begun:
            self._begun = True
            self._cpu_before = working_seconds()
            self._cpu_due = self._now() + CPU_SECONDS
            self._transport.call_later(self._report_s, self._again)
            if self._me.kind == "server":
                threading.Thread(target=self._beat_meanwhile, name=f"beat of {self._me}", daemon=True).start()
            if self.usage is not None:
                threading.Thread(target=self._measure, args=(self.usage,), name="usage", daemon=True).start()

    def note(self, record: Record) -> None:
        """Keeps a trace record until the next report."""
        self._rows.append(to_row(record))

    def spent(
        self,
        at: float,
        activity: str,
        seconds: float,
        steps: int = 0,
        samples: int = 0,
        hidden: float = 0.0,
        exchanges: int = 0,
        cpu: float = 0.0,
    ) -> None:
        """Notes a worker's own `Span` as a row, without making the object: a step of under 1 ms has three of them."""
        self._rows.append(("span", at, self._me.index, activity, seconds, steps, samples, hidden, exchanges, cpu))

    def settle(self, rank: int, fate: str, data: Data) -> None:
        """Reports what became of a contribution of leased data, soon and together with that of others."""
        if self._resolved.add(rank, fate, data):
            self._transport.call_later(SETTLE_SECONDS, self.tell_settled_when_copied)

    def tell_settled(self, up_to: int | None = None) -> None:
        """Sends the contributions that were resolved since the last report, at once; or those up to that message."""
        with self._settling:
            for message in self._resolved.messages(up_to):
                self._tell(message)

    def tell_settled_when_copied(self, *behind: control.Fenced) -> None:
        """Sends what is resolved by now, and what comes `behind`, once the copy of this server knows it."""
        with self._settling:
            last = self._resolved.queue(*behind)

        def tell() -> None:
            with contextlib.suppress(PeerLost):  # `lost` is about to be told
                self.tell_settled(last)

        self._after_replicated(tell)

    def forget_settled(self) -> None:
        """Drops what is not told yet of resolved contributions."""
        with self._settling:
            self._resolved.forget()

    def flush(self) -> None:
        """Reports all there is, now. Raises PeerLost."""
        self.tell_settled()
        self._report()

    def _report(self) -> None:
        """Sends progress and records; the party's own thread or the transport's may call it, one at a time."""
        with self._flushing:
            if self._progress is not None:
                self._tell(self._progress())
            while self._rows:
                lines, size = [], 0
                while self._rows and size < RECORDS_BYTES:
                    lines.append(line_of(self._rows.popleft()))
                    size += len(lines[-1])
                self._tell(control.Records(lines=b"\n".join(lines).decode()))

    def _note_cpu(self) -> None:
        """Notes the core seconds that this process has used, when that is due."""
        now = self._now()
        if now >= self._cpu_due:
            self._cpu_due = CPU_GROWTH * now
            seconds = working_seconds() - self._cpu_before
            self.note(CpuUsed(at=now, party=str(self._me), seconds=seconds, cores=cores()))

    def _tell(
        self, message: control.SamplesResolved | control.Fenced | control.Progress | control.Records | control.Beat
    ) -> None:
        """Sends a report to the coordinator."""
        self._transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, message))

    def _again(self) -> None:
        """Reports, and sets the timer for the next report until training has ended.

        With nothing to report a Beat is sent: silence for too long counts as death.
        """
        self._last_at = time.monotonic()
        if not self._ended.is_set():
            with contextlib.suppress(PeerLost):  # `lost` is about to be told
                if self._progress is None and not self._rows:
                    self._tell(control.Beat())
                self._note_cpu()
                self._report()
            self._transport.call_later(self._report_s, self._again)

    def _beat_meanwhile(self) -> None:
        """Sends Beats while the transport's thread is busy with a long update.

        They end after UPDATE_SECONDS_MAX, so that a server that hangs in an update is declared lost after all.
        """
        while not self._ended.wait(MEANWHILE_SECONDS):
            silent_s = time.monotonic() - self._last_at
            if MEANWHILE_SECONDS < silent_s < UPDATE_SECONDS_MAX:
                with contextlib.suppress(PeerLost):
                    self._tell(control.Beat())

    def _measure(self, usage: Callable[[], Iterable[Record]]) -> None:
        """Notes what this process uses until the end; the next report sends it."""
        while not self._ended.wait(self._usage_s):
            for record in usage():
                self.note(record)
