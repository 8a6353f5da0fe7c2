"""A launcher and its agents send one JSON object a line, each way, over any stream of bytes.

    state      sender    message    meaning                                                          next
    CALLED     agent     Knock      it has called back: a nonce                                      CALLED
    CALLED     launcher  Challenge  a nonce and a proof (see `agent_handshake.py`)                   CALLED
    CALLED     agent     Hello      which host it is and what it runs on                             KNOWN
    KNOWN      launcher  Begin      the environment, the command (none: Paceline's own worker),      KNOWN
                                    where to listen; after a first Beat; or else Refused
    KNOWN      agent     Begun      the address that parties will listen on; or Refused              READY
    READY      launcher  Prepare    load the data                                                    READY
    READY      agent     Prepared   the data is loaded; or Refused                                   READY
    READY      launcher  Start      start one party: its specification and its keys                  READY
    READY      agent     Said       a line that the party's command printed                          READY
    READY      agent     Ended      a party's process has ended; `why` is empty if all went well     READY
    READY      launcher  Kill       kill a party that was declared lost                              READY
    READY      agent     Leaving    its engine ends it soon, so that the run can be ended in order   READY
    READY      launcher  End        end all parties: SIGTERM first, SIGKILL after `seconds`          ENDING
    ENDING     agent     Over       all have ended                                                   closed
    any        both      Beat       every BEAT_SECONDS; silence of `SILENCE_SECONDS` is a loss       as it was

The stream belongs to one launcher. When it closes, the agent ends everything it started, and itself. Nothing secret is
ever said but in Start, so that no argument and no environment variable has a key or a token in it.
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
from paceline.live.security.tls import TlsStream

LINE_BYTES_MAX = 16 << 20
"""Bytes of a line; a configuration with the text of files in it is the longest."""
BEAT_SECONDS = 1.0
"""Seconds between two beats, each way."""
SILENT_SECONDS = 5.0
"""Seconds of silence after which a host is lost, if a party there has been declared lost too."""
SILENCE_SECONDS = 30.0
"""Seconds of silence after which the other side is lost in any case. A launcher may be stopped for a while."""


class AgentBeat(LaunchMessage, frozen=True, kw_only=True, tag="beat"):
    """Says that the sender lives. It has no answer."""


# ---- what an agent is told ---------------------------------------------------------------------------------------
class LauncherChallenge(LaunchMessage, frozen=True, kw_only=True, tag="challenge"):
    """The launcher sends this before anything else, to a process that called back."""

    nonce: bytes
    proof: bytes


class BeginRun(LaunchMessage, frozen=True, kw_only=True, tag="begin"):
    """`environment` is for all parties, `by_role` for those of a kind; `bind`: an interface, address or CIDR."""

    environment: dict[str, str]
    by_role: dict[str, dict[str, str]]
    command: list[str]
    bind: str


class Prepare(LaunchMessage, frozen=True, kw_only=True, tag="prepare"):
    """`workers`: those of this host, each with its rank and which GPU is its own where none is named."""

    config: dict[str, Any]
    workers: list[tuple[int, int]]


class StartProcess(LaunchMessage, frozen=True, kw_only=True, tag="start"):
    """`spec`: a ProcessSpec as JSON. `keys`: files of the party's credentials, by name."""

    spec: str
    keys: dict[str, str]


class Kill(LaunchMessage, frozen=True, kw_only=True, tag="kill"):
    """Asks to kill a party that was declared lost."""

    party: str


class End(LaunchMessage, frozen=True, kw_only=True, tag="end"):
    """Asks to end all parties: SIGTERM first, SIGKILL after `seconds`."""

    seconds: float


# ---- what it says ------------------------------------------------------------------------------------------------
class Knock(LaunchMessage, frozen=True, kw_only=True, tag="knock"):
    """Opens the handshake of an agent that called back."""

    nonce: bytes


class AgentHello(LaunchMessage, frozen=True, kw_only=True, tag="hello", forbid_unknown_fields=False):
    """Says which host an agent is on and what it runs on. Fields that this version does not know are accepted.

    proof      that an agent which called back knows the token of the ticket
    task       the number its engine gave it, or -1
    gpus       which its engine lets it see, as CUDA_VISIBLE_DEVICES has them; "" where nothing is said
    kind       for a party that was started by hand: as what it takes part; `task` is its number then
    protocol   the version of frames that it speaks
    """

    host: str
    pid: int
    python: str
    paceline: str
    torch: str
    protocol: int = 1
    byte_order: str = "little"
    proof: bytes = b""
    task: int = -1
    gpus: str = ""
    kind: str = ""


class Begun(LaunchMessage, frozen=True, kw_only=True, tag="begun"):
    """Says that the agent is ready, and on which address parties will listen."""

    address: str


class AgentPrepared(LaunchMessage, frozen=True, kw_only=True, tag="prepared"):
    """Says that the data is loaded."""

    train_samples: int


class AgentRefused(LaunchMessage, frozen=True, kw_only=True, tag="refused"):
    """Says in one line why this host, or this caller, cannot take part."""

    why: str


class Said(LaunchMessage, frozen=True, kw_only=True, tag="said"):
    """Carries a line that a party's command printed."""

    party: str
    line: str


class AgentProcessEnded(LaunchMessage, frozen=True, kw_only=True, tag="ended"):
    """Says that a party's process has ended, as `ProcessEnded`. `log`: the end of what it printed, if that went to a
    file."""

    party: str
    why: str
    log: str = ""
    lost_coordinator: bool = False


class RunOver(LaunchMessage, frozen=True, kw_only=True, tag="over"):
    """Says that all parties have ended; or, of a process started by hand, that it ends with exit code `code`."""

    code: int = 0


class Leaving(LaunchMessage, frozen=True, kw_only=True, tag="leaving"):
    """Says that the engine ends this agent soon, so that the run can be ended in order."""


Request = LauncherChallenge | AgentRefused | BeginRun | Prepare | StartProcess | Kill | End | AgentBeat
Event = (
    Knock | AgentHello | Begun | AgentPrepared | AgentRefused | Said | AgentProcessEnded | RunOver | Leaving | AgentBeat
)
W = TypeVar("W")


# ---- streams of bytes --------------------------------------------------------------------------------------------
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
        view = memoryview(data)
        while view.nbytes:
            try:
                view = view[self._socket.sendmsg([view]) :]
            except BlockingIOError:
                _wait(self._socket.fileno(), select.POLLOUT, SILENCE_SECONDS)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def free(self) -> None:
        self._socket.close()


class Descriptors:
    """Moves bytes over two descriptors that stay open as long as the process, such as standard input and output."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write

    def read(self, seconds: float) -> bytes:
        _wait(self._read, select.POLLIN, seconds)
        try:
            return os.read(self._read, 1 << 16)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
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
        while not self._over.wait(BEAT_SECONDS):
            self._lines.say(AgentBeat())
            self._then()

    def close(self) -> None:
        self._over.set()


def hang_up(lines: MessageStream[Any]) -> None:
    """Closes a stream that no thread hears, and frees its socket."""
    lines.close()
    while lines.hear() is not None:  # None frees the socket
        pass
