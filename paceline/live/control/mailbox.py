"""The mailbox of a party's own thread: messages, leases, quotas, and that the run is over."""

from __future__ import annotations

import collections
import queue
import threading
import time
from typing import Any, TypeVar

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.party import Party
from paceline.core.errors import ProtocolError, TimedOut

M = TypeVar("M")
AWAKE = object()
"""Wakes `until_exchanges`. One that comes too late, after another message, is skipped by the next wait."""


class SharedTexts:
    """Holds the last value of each name that a loop has shared with all workers, as JSON.

    A value of this worker counts at once. What arrives before the coordinator has sent it back is older than it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}
        self._on_their_way: collections.Counter[str] = collections.Counter()

    def get(self, name: str) -> str | None:
        """Returns the value, None if there is none."""
        return self._texts.get(name)

    def share(self, name: str, text: str) -> None:
        """Notes a value of this worker, before it is sent."""
        with self._lock:
            self._texts[name] = text
            self._on_their_way[name] += 1

    def arrived(self, shared: loop_messages.SharedValue) -> None:
        """Notes a value that the coordinator has sent."""
        with self._lock:
            self._on_their_way[shared.name] -= shared.own
            if not shared.own and not self._on_their_way[shared.name]:
                self._texts[shared.name] = shared.value


class Mailbox:
    """The transport's thread fills it; the party's own thread waits at it.

    over             set when the run is over for this party: Stop, Exit, or no coordinator any more
    may_exit         set when this process may end: Exit, or it cannot go on
    leases, quotas   leased samples and quotas; None and 0 mean that there will be no more
    dealt            samples drawn from the queue of all workers; None means that there will be no more
    taken            samples of shares that workers have left; the same
    shares_left      what workers that are gone have trained of shares; at the evaluator, None if nothing
    """

    def __init__(self, me: Party, timeout_s: float) -> None:
        """`timeout_s` bounds each wait for the coordinator while the run is being set up."""
        self._me, self.timeout_s = me, timeout_s
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.over, self.may_exit = threading.Event(), threading.Event()
        self.error: BaseException | None = None  # why this party cannot go on
        self.stop_reason = ""
        self._notice = ""
        self.rate_factor = 1.0  # of the operator, on the learning rate
        self.shared = SharedTexts()
        self.total_samples = 0
        self.total_exchanges = 0
        self._wake_at = 0  # exchanges of all workers; 0: nobody waits for them
        self.epochs = 0  # whole ones, of leased data
        self.leases: queue.SimpleQueue[control.Lease | None] = queue.SimpleQueue()
        self.quotas: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.dealt: dict[int, queue.SimpleQueue[loop_messages.Drawn | None]] = {}  # by data set of the loop
        self.taken: queue.SimpleQueue[loop_messages.ShareTaken | None] = queue.SimpleQueue()
        self.shares_left: loop_messages.SharesLeft | None = None

    @property
    def notice(self) -> str:
        """Returns why this worker ends after its step; "" if it does not."""
        return self._notice

    @notice.setter
    def notice(self, why: str) -> None:
        self._notice = why
        self.taken.put(None)  # it waits for no more samples

    # ---- the transport's thread --------------------------------------------------------------------------
    def put(self, message: Any) -> None:
        """Puts a message for the party's own thread, from any thread."""
        self._messages.put(message)

    def count(self, total: control.Total) -> None:
        """Notes what all workers have done, and wakes the party's own thread if it waits for so many exchanges."""
        self.total_samples, self.epochs, self.total_exchanges = total.samples, total.epochs, total.exchanges
        if 0 < self._wake_at <= total.exchanges:
            self._wake_at = 0
            self.put(AWAKE)

    def give(self, samples: control.Quota | control.Lease | loop_messages.Drawn | loop_messages.ShareTaken) -> None:
        """Gives the party's own thread samples that it has asked for."""
        match samples:
            case control.Quota(samples=quota):
                self.quotas.put(quota)
            case control.Lease() as lease:
                self.leases.put(lease)
            case loop_messages.Drawn(stream=stream) as drawn:
                self.dealt[stream].put(drawn)
            case loop_messages.ShareTaken() as taken:
                self.taken.put(taken)

    def exit(self) -> None:
        """Puts the end of the run, and sets the events that say so."""
        self.over.set()
        self.may_exit.set()
        self.put(control.Exit())

    def end(self, error: BaseException) -> None:
        """Wakes the party's own thread with `error`, wherever it waits."""
        self.over.set()
        self.put(error)
        self.leases.put(None)
        self.quotas.put(0)
        self.taken.put(None)
        for dealt in list(self.dealt.values()):
            dealt.put(None)

    # ---- the party's own thread --------------------------------------------------------------------------
    def take(self) -> Any:
        """Waits for the next message, which may be an error."""
        while (message := self._messages.get()) is AWAKE:
            pass
        return message

    def within(self, seconds: float) -> Any | None:
        """Returns the next message if one comes within `seconds`; raises it if it is an error."""
        until, message = time.monotonic() + seconds, AWAKE
        while message is AWAKE:
            try:
                message = self._messages.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return None
        if isinstance(message, BaseException):
            raise message
        return message

    def until_exchanges(self, count: int) -> Any | None:
        """Returns the next message, or None once all workers together have made `count` exchanges; raises an error."""
        self._wake_at = count
        while self.total_exchanges < count:
            message = self._messages.get()
            if isinstance(message, BaseException):
                raise message
            if message is not AWAKE:
                return message
        self._wake_at = 0
        return None

    def expect(self, wanted: type[M]) -> M:
        """Returns the next message. Raises Stopped, PeerLost or TimedOut."""
        message = self.within(self.timeout_s)
        if message is None:
            raise TimedOut(f"{self._me} waited {self.timeout_s:.0f} s for {wanted.__name__}")
        if not isinstance(message, wanted):
            raise ProtocolError(f"{self._me} expected {wanted.__name__}, got {type(message).__name__}")
        return message

    def check(self) -> None:
        """Raises what has ended this party before the run was over, if anything has."""
        if self.error is not None:
            raise self.error
