"""What a party tells the coordinator of itself, a few times a second, from when training starts.

Its progress, its trace records, and what became of leased samples; a party that has nothing to tell says that it is
there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from paceline.core.errors import PeerLost
from paceline.core.leases import Data
from paceline.core.trace import KINDS, Record
from paceline.live import control, party
from paceline.live.party import Party
from paceline.live.transport import Envelope, Kind, Transport

REPORT_SECONDS = 0.25
MEANWHILE_SECONDS = 0.5
UPDATE_SECONDS_MAX = 300.0  # that a server may be at one update before it counts as hung
OPENINGS = {kind: f'{{"kind":"{name}",'.encode() for name, kind in KINDS.items()}
ENCODER = msgspec.json.Encoder()
RECORDS_BYTES = 32 * 1024  # a header holds twice that
SETTLE_SECONDS = 0.05
SETTLED_MAX = 256  # contributions in one message


def line_of(record: Record) -> bytes:
    """JSON, with the fields that are as by default: to leave them out takes three times as long, in every step."""
    return OPENINGS[type(record)] + ENCODER.encode(record)[1:]


class Reports:
    """Of one party; `ended` is set when it tells nothing more."""

    def __init__(self, transport: Transport, me: Party, ended: threading.Event) -> None:
        self._transport, self._me, self._ended = transport, me, ended
        self._progress: Callable[[], control.Progress] | None = None
        self._records: deque[Record] = deque()
        self._settled: deque[tuple[int, str, Data]] = deque()
        self._begun = False
        self._last_at = time.monotonic()
        self._flushing = threading.Lock()

    def begin(self, progress: Callable[[], control.Progress] | None = None) -> None:
        """From now on by itself; once more: with another `progress`."""
        self._progress = progress
        if not self._begun:
            self._begun = True
            self._transport.call_later(REPORT_SECONDS, self._again)
            if self._me.kind == "server":
                threading.Thread(target=self._beat_meanwhile, name=f"beat of {self._me}", daemon=True).start()

    def note(self, record: Record) -> None:
        """Keep a trace record until the next report."""
        self._records.append(record)

    def settle(self, rank: int, fate: str, data: Data) -> None:
        """What became of a contribution of leased data; told soon, together with that of others."""
        if not self._settled:
            self._transport.call_later(SETTLE_SECONDS, self._tell_settled_soon)
        self._settled.append((rank, fate, data))

    def tell_settled(self) -> None:
        while self._settled:
            some = [self._settled.popleft() for _ in range(min(len(self._settled), SETTLED_MAX))]
            self._tell(control.Settled(contributions=tuple(some)))

    def flush(self) -> None:
        """Report now; from the party's own thread or the transport's, one at a time. Raises PeerLost."""
        with self._flushing:
            self.tell_settled()
            if self._progress is not None:
                self._tell(self._progress())
            while self._records:
                lines, size = [], 0
                while self._records and size < RECORDS_BYTES:
                    lines.append(line_of(self._records.popleft()))
                    size += len(lines[-1])
                self._tell(control.Records(lines=b"\n".join(lines).decode()))

    def _tell(self, message: control.Settled | control.Progress | control.Records | control.Beat) -> None:
        self._transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, message))

    def _tell_settled_soon(self) -> None:
        with contextlib.suppress(PeerLost):  # `lost` is about to be told
            self.tell_settled()

    def _again(self) -> None:
        self._last_at = time.monotonic()
        if not self._ended.is_set():
            with contextlib.suppress(PeerLost):  # `lost` is about to be told
                if self._progress is None and not self._records:
                    self._tell(control.Beat())
                self.flush()
            self._transport.call_later(REPORT_SECONDS, self._again)

    def _beat_meanwhile(self) -> None:
        """While the transport's thread is in a long update. One that never comes out of it falls silent in the end."""
        while not self._ended.wait(MEANWHILE_SECONDS):
            silent_s = time.monotonic() - self._last_at
            if MEANWHILE_SECONDS < silent_s < UPDATE_SECONDS_MAX:
                with contextlib.suppress(PeerLost):
                    self._tell(control.Beat())
