"""Keeps the lines of a coordinator that has a process of its own, its stream, and that of its standby.

Every line goes to the coordinator and is kept until there is a standby that has heard it. When the coordinator's stream
ends, the standby is given the lines it lacks and is the coordinator from then on; it makes a standby first. Until the
first one is there, all lines are, and a new process is given them.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from functools import partial
from typing import Any, Protocol

from paceline.core.errors import PacelineError
from paceline.job.crew import how_ended
from paceline.job.standby import LENGTH_BYTES, decode, framed
from paceline.live.loop import Loop

LINES_MAX = 512  # heard since the last standby was made, before the next is
LIVES_MAX = 4  # in a row that end before they have heard all lines: one of these ends them
CHECK_SECONDS = 0.25
AGAIN_SECONDS = 1.0  # before a standby is asked for again that could not be made


class Listener(Protocol):
    """Hears on the link's own thread."""

    def said(self, of: list[Any]) -> None:
        """By the coordinator; each once, whichever of its processes said it."""

    def lost_process(self, why: str) -> None:
        """A process of it; another one is given the lines."""

    def back(self, pid: int, lines: int) -> None:
        """All lines have been heard, `lines` of them by a standby that has taken over; of the first process none."""

    def gone(self, why: str) -> None:
        """For good."""


class _Stream:
    """One process of the coordinator. `at`: the last line that it had heard when it was made."""

    def __init__(self, link: Link, sock: socket.socket, at: int, pid: int = 0) -> None:
        self._link, self._sock, self.at, self.pid = link, sock, at, pid
        self.heard_at = math.inf  # while it starts
        self._unread, self._unsent = bytearray(), bytearray()
        sock.setblocking(False)
        self._watch()

    def write(self, frame: bytes) -> None:
        waits = bool(self._unsent)
        self._unsent += frame
        if not waits:
            self._send()

    def close(self) -> None:
        self._link.loop.watch(self._sock, 0, self._ready)
        self._sock.close()

    def _watch(self) -> None:
        writes = selectors.EVENT_WRITE if self._unsent else 0
        self._link.loop.watch(self._sock, selectors.EVENT_READ | writes, self._ready)

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                del self._unsent[: self._sock.send(self._unsent)]
            except OSError as error:  # the end is noticed where it is read
                if isinstance(error, BlockingIOError):
                    raise
                self._unsent.clear()
        self._watch()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._send()
        if events & selectors.EVENT_READ:
            try:
                data = self._sock.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._read(data)

    def _read(self, data: bytes) -> None:
        if not data:
            self._link.ended(self)
            return
        self.heard_at = time.monotonic()
        self._unread += data
        begin = 0
        while len(self._unread) - begin >= LENGTH_BYTES:
            end = begin + LENGTH_BYTES + int.from_bytes(self._unread[begin : begin + LENGTH_BYTES], "big")
            if len(self._unread) < end:
                break
            self._link.heard(self, decode(self._unread[begin + LENGTH_BYTES : end]))
            begin = end
        del self._unread[:begin]


class Link:
    """Everything but `put` and `close` happens on a thread of its own."""

    def __init__(self, dead_after_s: float) -> None:
        """It starts its process, which takes a moment. `dead_after_s`: so long that may take to answer."""
        self._listener: Listener | None = None
        self._dead_after_s = dead_after_s
        self.loop = Loop("lines to the coordinator", self._failed)
        self._log: deque[bytes] = deque()
        self._last = 0  # how many lines there have been
        self._since = 0  # how many since a standby was asked for
        self._said = 0  # the number of the last that was said
        self._primary: _Stream | None = None
        self._standby: _Stream | None = None
        self._coming: _Stream | None = None
        self._forks, self._their_forks = socket.socketpair(type=socket.SOCK_DGRAM)
        self._forked = self._asked = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._futile = 0  # lives in a row that ended before they had heard all lines
        self._replayed = 0
        self._unguarded: _Stream | None = None  # goes on, but nobody stands by
        self._checked_at = time.monotonic()
        self._closing, self._broken = False, ""
        self._forks.setblocking(False)
        self._their_forks.setblocking(False)
        self.loop.call_soon(self._start)
        self.loop.call_later(CHECK_SECONDS, self._check)
        self.loop.start()

    @property
    def _told(self) -> Listener:
        """Whoever begins has one; a process that ends before that has said why on standard error."""
        if self._listener is None:
            raise PacelineError("the coordinator's process has ended before the run began")
        return self._listener

    def begin(self, listener: Listener, line: list[Any]) -> None:
        """The first line."""
        self._listener = listener
        if self._broken:
            listener.gone(self._broken)
        self.put(line)

    def put(self, line: list[Any]) -> None:
        """Take it down; from any thread."""
        self.loop.call_soon(partial(self._append, framed(line)))

    def close(self) -> None:
        """The others see their streams end."""
        self._closing = True
        self.loop.end()
        for stream in filter(None, (self._primary, self._standby, self._coming)):
            if stream.pid:  # one that is stopped would not see it
                with contextlib.suppress(ProcessLookupError):
                    os.kill(stream.pid, signal.SIGKILL)
        self._close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _close(self) -> None:
        for stream in filter(None, (self._primary, self._standby, self._coming)):
            stream.close()
        self._primary = self._standby = self._coming = None
        self._forks.close()
        self._their_forks.close()

    def _failed(self, error: BaseException) -> None:
        self._broken = str(error) or repr(error)
        if self._listener is None:  # told at the beginning
            return
        self._listener.gone(self._broken)

    @property
    def heard_at(self) -> float:
        """When the coordinator last answered, monotonic; infinite while there is none that has."""
        primary = self._primary
        return primary.heard_at if primary is not None else math.inf

    # ---- lines -------------------------------------------------------------------------------------------
    def _append(self, frame: bytes) -> None:
        self._log.append(frame)
        self._last += 1
        self._since += 1
        if self._primary is None:
            return
        self._primary.write(frame)
        if self._last == 1:
            self._make_sure()
        if self._last == 1 or self._since >= LINES_MAX:
            self._ask_for_standby(self._last)

    def _start(self) -> None:
        """A process that has heard nothing yet."""
        ours, theirs = socket.socketpair()
        numbers = [theirs.fileno(), self._their_forks.fileno()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paceline.job.standby", *map(str, numbers)],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the command
        )
        theirs.close()
        self._primary = _Stream(self, ours, 0, self._process.pid)
        for frame in self._log:
            self._primary.write(frame)
        if self._last:
            self._make_sure()
            self._ask_for_standby(self._last)

    def _make_sure(self) -> None:
        """Who has answered this has heard all before."""
        assert self._primary is not None
        self._asked += 1
        self._primary.write(framed([0.0, "done", self._asked]))

    # ---- standbys ----------------------------------------------------------------------------------------
    def _ask_for_standby(self, at: int) -> None:
        if self._coming is not None or self._primary is None:
            return
        self._since = self._last - at
        self._forked += 1
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._forks, [self._forked.to_bytes(8, "big")], [theirs.fileno()])
        except OSError:  # too many are on their way
            ours.close()
            return
        finally:
            theirs.close()
        self._coming = _Stream(self, ours, at)
        self._primary.write(framed([0.0, "fork", self._forked]))

    def _again(self) -> None:
        """Once more, if there is none."""
        if self._standby is None:
            self._ask_for_standby(self._last)

    def heard(self, stream: _Stream, said: list[Any]) -> None:
        number, what, *of = said
        if number > self._said and stream is self._primary:
            self._said = number
            self._told.said([what, *of])
        elif what == "ready":
            self._is_ready(stream, *of)
        elif what == "done" and 0 < of[0] == self._asked and stream is self._primary:
            self._futile = 0
            self._unguarded = stream
            if self._standby is not None or self._coming is None:
                self._is_back()

    def _is_back(self) -> None:
        """Told once another one stands by, or cannot for now: whoever hears it may count on the next loss, too."""
        if self._unguarded is not None and self._unguarded is self._primary:
            self._told.back(self._primary.pid, self._replayed)
        self._unguarded = None

    def _is_ready(self, stream: _Stream, pid: int) -> None:
        stream.pid = pid
        if stream is self._coming:
            if self._standby is not None:
                self._standby.close()
            self._standby, self._coming = stream, None
            self._is_back()
            while self._last - len(self._log) < stream.at:
                self._log.popleft()

    # ---- losses ------------------------------------------------------------------------------------------
    def ended(self, stream: _Stream) -> None:
        stream.close()
        if stream is self._coming:
            self._coming = None
            self._is_back()
            self.loop.call_later(AGAIN_SECONDS, self._again)
        elif stream is self._standby:
            self._standby = None
            self._again()
        elif stream is self._primary and not self._closing:
            self._take_over(self._why(stream))

    def _why(self, stream: _Stream) -> str:
        if self._process is not None and stream.pid == self._process.pid:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(0.5)
                how = how_ended(code)
                return f"pid {stream.pid} {how}"
        return f"pid {stream.pid} has ended"

    def _take_over(self, why: str) -> None:
        self._futile += 1
        if self._coming is not None:
            self._coming.close()
        self._primary, self._standby, self._coming = self._standby, None, None
        begun = self._last - len(self._log)
        if self._futile >= LIVES_MAX:
            self._told.gone(f"{why}, and so did {LIVES_MAX - 1} others before it that were to take over")
            return
        if self._primary is None and begun:
            self._told.gone(f"{why}, and its standby with it")
            return
        self._told.lost_process(why)
        self._replayed = len(self._log)
        if self._primary is None:
            self._start()
            return
        self._primary.heard_at = time.monotonic()
        self._ask_for_standby(begun)
        for frame in self._log:
            self._primary.write(frame)
        self._make_sure()

    def _check(self) -> None:
        """Has it fallen silent, while this side was awake?"""
        now = time.monotonic()
        if now - self._checked_at > 4 * CHECK_SECONDS and self._primary is not None:
            self._primary.heard_at = max(self._primary.heard_at, now)  # infinite while it starts
        self._checked_at = now
        if self._primary is not None:
            if now - self._primary.heard_at > self._dead_after_s:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._primary.pid, signal.SIGKILL)
            elif now >= self._primary.heard_at:
                self._primary.write(framed([0.0, "done", 0]))  # an answer is enough
        self.loop.call_later(CHECK_SECONDS, self._check)
