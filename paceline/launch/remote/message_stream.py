"""Streams over which a launcher and its agents send messages: any bytes that go both ways, one message a line.

    ByteStream     a socket, or two descriptors such as standard input and output
    MessageStream  typed messages over it: `say` from any thread, `hear` on one
    Heartbeat      a beat every BEAT_SECONDS, by which the other side knows that this one lives

The messages, and which of them comes when, are in `agent_messages.py`.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from paceline.launch.local.line_messages import LaunchMessage, LineDecoder, encode
from paceline.launch.remote.agent_messages import AgentBeat
from paceline.live.security.tls import TlsStream

LINE_BYTES_MAX = 16 << 20
"""Bytes of a line; a configuration with the text of files in it is the longest."""
BEAT_SECONDS = 1.0
"""Seconds between two beats, each way."""
SILENT_SECONDS = 5.0
"""Seconds of silence after which a host is lost, if a party there has been declared lost too."""
SILENCE_SECONDS = 30.0
"""Seconds of silence after which the other side is lost in any case. A launcher may be stopped for a while."""
W = TypeVar("W")


class ByteStream(Protocol):
    """Moves bytes; the two ends are a socket, or two descriptors."""

    def read(self, seconds: float) -> bytes:
        """Returns what has come; b"" when the other side is gone. Raises TimeoutError."""

    def write(self, data: bytes) -> None:
        """Writes all of it; one thread at a time may call this. Raises OSError."""

    def close(self) -> None:
        """Wakes the thread that reads, which then returns b""."""

    def free(self) -> None:
        """Frees the descriptors, when nobody reads any more."""


class SocketStream:
    """Moves bytes over a connected socket, plain or under TLS."""

    def __init__(self, sock: socket.socket | TlsStream) -> None:
        sock.setblocking(False)
        self._socket = sock

    def read(self, seconds: float) -> bytes:
        """Returns what has come, at most 64 KiB; b"" at the end of the stream. Raises TimeoutError."""
        room = bytearray(1 << 16)
        deadline = time.monotonic() + seconds
        while True:
            try:
                return bytes(room[: self._socket.recv_into(room)])
            except BlockingIOError:
                _wait(self._socket.fileno(), select.POLLIN, deadline - time.monotonic())
            except OSError:
                return b""

    def write(self, data: bytes) -> None:
        """Sends all of `data`. Raises TimeoutError where the other side takes nothing for SILENCE_SECONDS."""
        view = memoryview(data)
        while view.nbytes:
            try:
                view = view[self._socket.sendmsg([view]) :]
            except BlockingIOError:
                _wait(self._socket.fileno(), select.POLLOUT, SILENCE_SECONDS)

    def close(self) -> None:
        """Shuts the socket down, which wakes who reads; `free` gives its descriptor back."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def free(self) -> None:
        self._socket.close()


class Descriptors:
    """Moves bytes over two descriptors that stay open as long as the process, such as standard input and output."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write

    def read(self, seconds: float) -> bytes:
        """Returns what has come, at most 64 KiB; b"" at the end of the stream. Raises TimeoutError."""
        _wait(self._read, select.POLLIN, seconds)
        try:
            return os.read(self._read, 1 << 16)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        """Writes all of `data`, and waits for the reader if the pipe is full."""
        view = memoryview(data)
        while view.nbytes:
            view = view[os.write(self._write, view) :]

    def close(self) -> None: ...
    def free(self) -> None: ...


def _wait(descriptor: int, events: int, seconds: float) -> None:
    """Waits until a descriptor is ready. Raises TimeoutError, or ConnectionError for one that was closed here."""
    if descriptor < 0:
        raise ConnectionError("closed by this side")
    poll = select.poll()
    poll.register(descriptor, events)
    if not poll.poll(max(0.0, seconds) * 1000):
        raise TimeoutError(f"nothing came for {seconds:.0f} s")


class MessageStream(Generic[W]):
    """Sends and receives messages over a stream. Any thread may call `say`, one thread calls `hear`."""

    def __init__(self, stream: ByteStream, hears: Any) -> None:
        """`hears`: a union of the messages that the other side may send."""
        self._stream = stream
        self._decoder: LineDecoder[W | AgentBeat] = LineDecoder(hears)
        self._lock = threading.Lock()
        self.heard_at = time.monotonic()

    def say(self, word: LaunchMessage) -> None:
        """Sends a message. It is lost where the other side is gone, which `hear` will tell."""
        data = encode(word)
        with self._lock, contextlib.suppress(OSError):
            self._stream.write(data)

    def hear(
        self, seconds: float = SILENCE_SECONDS, *, deadline: float = math.inf, bytes_max: int = LINE_BYTES_MAX
    ) -> W | None:
        """Returns the next message but beats; None when the other side is gone, silent for `seconds`, or sends
        nonsense.

        None is also returned when the message is not there by `deadline`, of the monotonic clock, or longer than
        `bytes_max`. After None nothing more is heard.
        """
        while True:
            while not self._decoder.has_message:
                left = deadline - time.monotonic()
                if left <= 0 or not self._more(min(seconds, left), bytes_max):
                    self._stream.free()
                    return None
            try:
                word = self._decoder.take()
            except ValueError:
                self._stream.free()
                return None
            if not isinstance(word, AgentBeat):
                return word

    def _more(self, seconds: float, bytes_max: int) -> bool:
        """Reads once; returns False when the other side is gone, or its line is too long."""
        try:
            data = self._stream.read(seconds)
        except OSError:
            return False
        self.heard_at = time.monotonic()
        self._decoder.feed(data)
        return bool(data) and self._decoder.unfinished_bytes <= bytes_max

    def answered(self, seconds: float) -> bool:
        """Waits for the first message of the other side, which may be a beat; returns False when none comes in time."""
        deadline = time.monotonic() + seconds
        while not self._decoder.has_message and self._more(max(0.0, deadline - time.monotonic()), LINE_BYTES_MAX):
            pass
        return self._decoder.has_message

    @property
    def hung_up(self) -> bool:
        """Returns True if the other side, which has sent only beats so far, is gone. Those that have come are
        dropped."""
        try:
            while data := self._stream.read(0.0):
                self._decoder.feed(data)
                self._decoder.drop()
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    @property
    def silent(self) -> bool:
        """Returns True if the other side has missed some beats."""
        return time.monotonic() - self.heard_at > SILENT_SECONDS

    def close(self) -> None:
        """Wakes the thread that hears, which frees the stream."""
        with contextlib.suppress(OSError):
            self._stream.close()


class Heartbeat:
    """Sends a beat every BEAT_SECONDS until it is closed; after each, `then` is called."""

    def __init__(self, lines: MessageStream[Any], then: Callable[[], None] = lambda: None) -> None:
        self._lines, self._then, self._over = lines, then, threading.Event()
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Is the main function of the thread that sends beats."""
        while not self._over.wait(BEAT_SECONDS):
            self._lines.say(AgentBeat())
            self._then()

    def close(self) -> None:
        """Stops the beats; the thread ends within a beat."""
        self._over.set()


def hang_up(lines: MessageStream[Any]) -> None:
    """Closes a stream that no thread hears, and frees its socket."""
    lines.close()
    while lines.hear() is not None:  # None frees the socket
        pass
