"""Runs the loop box (`Role.run`) of one party, on the party's own thread.

at             input                              then                                        next
NOT BEGUN      begin                              the generator is made                       RUNNING
RUNNING        Tell, Reply, Start                 carried out at once                         RUNNING
RUNNING        Call, Mean, Wait                   sent; `begin` returns                       AWAITING
RUNNING        Compute, Train                     `begin` returns                             LOCAL WORK
AWAITING       finish: the answer                 the generator gets it                       RUNNING
AWAITING       finish: PeerLost                   thrown into the generator, which may go on  RUNNING
LOCAL WORK     finish returns the effect          the caller computes, and calls `begin`      RUNNING
LOCAL WORK     end: nothing more is computed      `Role.last_exchange` is the generator       RUNNING
any            start_anew: servers went back      another generator, which starts when it is  as it was
                                                  resumed (`core/parties/server_view.py`)
any            the run is stopped                 Stopped, or the cause, is raised

What the role yields is sent without the lock. So another thread may act meanwhile on what the role has been told since,
such as that somebody leaves. Who is to hear of the end of all messages before is answered by `when_sent`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, assert_never

from paceline.core.effects import Call, Compute, Effect, Mean, Reply, Start, Tell, Train, Wait
from paceline.core.errors import PeerLost, Stopped
from paceline.core.parties.server_view import loop_anew
from paceline.core.role import Role
from paceline.live.node.message_sender import MessageSender
from paceline.live.node.timing import AwaitedSeconds, Times
from paceline.live.protocol.pending_reply import PendingReply

_LOCAL_WORK = (Compute, Train)
"""Effects that the caller carries out. A tuple: to make the union takes longer than to look."""


class EffectLoop:
    """Carries out the effects of a generator one after the other, each when the one before has its result."""

    def __init__(
        self,
        out: MessageSender,
        times: Times,
        lock: threading.RLock,
        *,
        role: Callable[[], Role],
        mean: Callable[[Mean], PendingReply],
        reply: Callable[[Role, Reply], None],
    ) -> None:
        """`role` returns whose loop it is. `lock` keeps the generator apart from `on`, which runs on another thread."""
        self._out, self._times, self._lock = out, times, lock
        self._role, self._mean, self._reply = role, mean, reply
        self._generator: Generator[Effect, Any, None] | None = None
        self._wanted: Compute | Train | AwaitedSeconds | None = None  # the effect it stopped at
        self.begun_anew = 0  # how often it was started anew
        self._server_view = 0  # of its last step: what it sends belongs to that view
        self._sending = False  # the role is at a step, or what it has yielded is not sent yet
        self._afterwards: deque[Callable[[], None]] = deque()

    def start_anew(self, role: Role) -> None:
        """Makes the loop of `role` start from the beginning when it is resumed next; called under the lock."""
        self._generator = loop_anew(role, self._begins_anew)

    def _begins_anew(self) -> None:
        self.begun_anew += 1

    def begin(self, result: Any) -> None:
        """Carries out effects up to the first that has to be waited for, or to local work."""
        self._wanted = self._proceed(result, None)

    def finish(self, since: float, sending: float) -> Compute | Train:
        """Waits and carries out effects until local work; returns that. `since`, `sending`: as in `Node.finish`."""
        while isinstance(self._wanted, AwaitedSeconds):
            awaited, self._wanted = self._wanted, None
            awaited.since = max(awaited.since, since)
            try:
                value, lost = self.wait(awaited, sending), None
            except PeerLost as error:  # the scheme may know what to do without
                value, lost = None, error
            sending = 0.0
            self._wanted = self._proceed(value, lost)
        wanted, self._wanted = self._wanted, None  # not kept here, so that its weights can be freed
        assert wanted is not None
        return wanted

    def end(self, *, soon: bool) -> None:
        """Closes the generator, and runs `Role.last_exchange` in its place until that returns.

        Raises Undone if servers were replaced meanwhile, and what `finish` raises.
        """
        if self._wanted is not None:  # the exchange began while backward was running, and nobody has made the step
            self.finish(0.0, 0.0)
        with self._lock:
            if self._generator is not None:
                self._generator.close()
            self._generator = self._role().last_exchange(soon=soon)
        try:
            self.begin(None)
            wanted = self.finish(0.0, 0.0)
        except Stopped:
            if self._out.calls.over is not None:
                raise
        else:
            raise AssertionError(f"{type(self._role()).__qualname__}.last_exchange asked for {type(wanted).__name__}")

    def wait(self, awaited: AwaitedSeconds, sending: float = 0.0) -> Any:
        """Returns the result of a call or mean, and counts the time of the wait, also of one that fails."""
        try:
            return awaited.pending.wait(self._out.timeout_s)
        finally:  # a wait that the end of the run cuts short was a wait all the same
            self._times.waited(awaited, time.monotonic(), sending)

    def _proceed(self, value: Any, lost: PeerLost | None) -> Compute | Train | AwaitedSeconds:
        """Carries out effects until the scheme wants to compute or has to wait; returns that."""
        while True:
            self._sending = True  # before the role decides what it sends
            try:
                effect = self._resume(value, lost)
                if isinstance(effect, _LOCAL_WORK):
                    return effect
                try:
                    value, lost = self._carry(effect), None
                except PeerLost as error:
                    value, lost = None, error
            finally:
                self._has_sent()
            if isinstance(value, AwaitedSeconds):
                return value

    def when_sent(self, act: Callable[[], None]) -> None:
        """Calls `act` when all is sent that the role has yielded so far: now, or on the loop's own thread.

        Any thread may call it. It never waits.
        """
        self._afterwards.append(act)
        if not self._sending:
            self._act_afterwards()

    def _has_sent(self) -> None:
        # Whoever calls `when_sent` looks after it has appended, and this looks after it has noted that all is sent. So
        # one of the two finds what is to be done, without a lock.
        self._sending = False
        if self._afterwards:
            self._act_afterwards()

    def _act_afterwards(self) -> None:
        while self._afterwards:
            try:
                act = self._afterwards.popleft()
            except IndexError:  # another thread was faster
                return
            act()

    def _resume(self, value: Any, lost: PeerLost | None) -> Effect:
        """Resumes the scheme and returns its next effect.

        lost: raised in the scheme where it stands, in place of a value. Raises Stopped at the end of the box, and the
        run's error once that has stopped.
        """
        with self._lock:
            if self._out.calls.over is not None:
                raise self._out.calls.over
            self._server_view = self._out.calls.server_view
            if self._generator is None:
                self._generator, value = self._role().run(), None
            try:
                return self._generator.throw(lost) if lost else self._generator.send(value)
            except StopIteration:
                raise Stopped from None

    def _carry(self, effect: Call | Mean | Tell | Reply | Start | Wait) -> Any:
        """Carries out one effect; returns its result, or what has to be waited for."""
        match effect:
            case Call() | Mean():
                began = time.monotonic()
                return AwaitedSeconds(self._begin(effect), began)
            case Tell():
                return self._out.tell(effect.to, effect.message, self._server_view)
            case Reply():
                return self._reply(self._role(), effect)
            case Start(effect=inner):
                return self._begin(inner)
            case Wait(ticket=ticket):
                assert isinstance(ticket, PendingReply)
                return AwaitedSeconds(ticket, time.monotonic())
            case _:
                assert_never(effect)

    def _begin(self, effect: Call | Mean) -> PendingReply:
        """Begins a call or a mean; returns the pending result."""
        if isinstance(effect, Mean):
            self._has_sent()  # its carrier may take its time, and nobody passes a part of a mean on
            return self._mean(effect)
        return self._out.call(effect.to, effect.message, streams=effect.streams, server_view=self._server_view)
