"""Keeps keys and values on the coordinator, through which workers set up torch.distributed (its rendezvous).

torch's own TCPStore listens on every interface and asks nobody who they are; here each worker asks over the connection
that it has already, under TLS where there is TLS.

    worker -> coordinator, as a Call            coordinator -> worker, as the Reply
    Put      the value of a key from now on     Found   its value; None where it has none
    Get      the value, once it is there        Vain    it will not come, because
    Add      to a number, 0 at first
    Forget   a key

The store never blocks. A Get is kept until its key is there (Found), its time is up, or a party is lost (Vain).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.core.coordination.party import Party
from paceline.core.errors import PacelineError, PeerLost, ProtocolError, TimedOut
from paceline.core.message import message
from paceline.core.validation import bounds
from paceline.live.protocol.transport import Envelope, Kind, Post

KEY_CHARACTERS_MAX = 512
VALUE_BYTES_MAX = 32 * 1024  # a frame's header has 64 KiB; Gloo brings 8 bytes a worker
KEYS_MAX = 4096
TOTAL_BYTES_MAX = 16 << 20
WAITS_MAX = 16  # of one worker at a time
TICK_SECONDS = 0.25
"""Seconds between two looks at waits that may be over."""


@message("rendezvous.Put", plane="collective")
class Put:
    """Sets a key. `instead_of`: only if the key has this value (empty: no value); None sets it in any case."""

    key: bounds.LongText
    value: bounds.LongBytes
    instead_of: bounds.MaybeBytes = None


@message("rendezvous.Get", plane="collective")
class Get:
    """Asks for a value. `seconds`: how long to wait for it; 0 answers at once with what there is."""

    key: bounds.LongText
    seconds: bounds.Seconds = 0.0


@message("rendezvous.Add", plane="collective")
class Add:
    """Adds `amount` to the key's value, a decimal number."""

    key: bounds.LongText
    amount: bounds.Amount


@message("rendezvous.Forget", plane="collective")
class Forget:
    """Deletes a key; the answer has the value that it had."""

    key: bounds.LongText


@message("rendezvous.Found", plane="collective")
class Found:
    """Answers with the key's value; for Forget, the value that it had."""

    value: bounds.MaybeBytes


@message("rendezvous.Vain", plane="collective")
class Vain:
    """Answers that the value will not come. `late`: the time was up; else a party was lost."""

    why: bounds.LongText
    late: bool = False

    def error(self, src: Party) -> PacelineError:
        """Returns the error that the asking worker raises."""
        return TimedOut(self.why) if self.late else PeerLost(self.why)


QUESTIONS, ANSWERS = (Put, Get, Add, Forget), (Found, Vain)


@dataclass(slots=True)
class _Wait:
    """Holds a Get that is not answered yet; `left_s` are the seconds until it is too late."""

    src: Party
    id: int
    key: str
    seconds: float
    left_s: float


class Rendezvous:
    """Stores the keys of one run, on the coordinator's thread. `hosts`: the host of each worker, for messages."""

    def __init__(self, transport: Post, workers: Sequence[Party], tick_later: Callable[[float], None]) -> None:
        """`tick_later` is to call `tick` after so many seconds, on the same thread."""
        self._transport, self._workers, self._tick_later = transport, workers, tick_later
        self.hosts: dict[Party, str] = {}
        self._values: dict[str, bytes] = {}
        self._bytes = 0
        self._came: set[Party] = set()  # workers that have set a key
        self._waits: list[_Wait] = []
        self._ticks = False
        self._lost = ""

    def deliver(self, src: Party, question: Envelope) -> None:
        """Answers a question. Raises ProtocolError beyond the limits above, and for Add to what is no number."""
        match question.message:
            case Get(key=key, seconds=seconds):
                self._get(_Wait(src, question.id, key, seconds, seconds))
                return
            case Put() as put:
                now = self._values.get(put.key)
                if put.instead_of is None or put.instead_of == (now or b""):
                    now = self._set(src, put.key, put.value)
            case Add(key=key, amount=amount):
                now = self._set(src, key, str(self._number(src, key) + amount).encode())
            case Forget(key=key):
                now = self._values.pop(key, None)
                self._bytes -= len(now or b"")
            case other:
                raise ProtocolError(f"{src} asks for {type(other).__name__} where workers meet")
        self._answer(src, question.id, Found(value=now))
        self._look()

    def lost(self, who: Party, why: str) -> None:
        """Fails all waiting, now and later, since the run ends with the loss of `who`."""
        self._lost = self._lost or f"lost {self._named(who)}: {why}"
        self._look()

    def _get(self, wait: _Wait) -> None:
        """Answers a Get at once, or keeps it until its key is there. Raises ProtocolError for too many of a worker."""
        if wait.seconds <= 0:
            self._found(wait)
            return
        if sum(other.src == wait.src for other in self._waits) >= WAITS_MAX:
            raise ProtocolError(f"{wait.src} waits for more than {WAITS_MAX} keys at a time")
        self._waits.append(wait)
        self._look()
        self._start_ticks()

    def _set(self, src: Party, key: str, value: bytes) -> bytes:
        """Sets a key. Raises ProtocolError for one that is too long, or where there is too much already."""
        total = self._bytes + len(value) - len(self._values.get(key, b""))
        if len(key) > KEY_CHARACTERS_MAX or len(value) > VALUE_BYTES_MAX:
            raise ProtocolError(f"{src} brings a key of {len(key)} characters with {len(value)} bytes: too long")
        if total > TOTAL_BYTES_MAX or len(self._values.keys() | {key}) > KEYS_MAX:
            raise ProtocolError(f"{src} brings too much: there are {len(self._values)} keys with {self._bytes} bytes")
        self._values[key], self._bytes = value, total
        self._came.add(src)
        return value

    def _number(self, src: Party, key: str) -> int:
        """Returns the number that a key holds, 0 where there is none. Raises ProtocolError for other values."""
        try:
            return int(self._values.get(key, b"0"))
        except ValueError:
            raise ProtocolError(f"{src} adds to {key}, which is no number") from None

    def _look(self) -> None:
        """Answers those whose wait is over."""
        waits, self._waits = self._waits, []
        for wait in waits:
            if wait.key in self._values:
                self._found(wait)
            elif self._lost:
                self._answer(wait.src, wait.id, Vain(why=self._lost))
            elif wait.left_s <= 0:
                self._answer(wait.src, wait.id, Vain(why=self._why_late(wait), late=True))
            else:
                self._waits.append(wait)

    def _start_ticks(self) -> None:
        """Starts a tick while somebody waits. Ticks are counted, since the clock is reset when training starts."""
        if self._waits and not self._ticks:
            self._ticks = True
            self._tick_later(TICK_SECONDS)

    def tick(self) -> None:
        """Counts TICK_SECONDS for all who wait."""
        self._ticks = False
        for wait in self._waits:
            wait.left_s -= TICK_SECONDS
        self._look()
        self._start_ticks()

    def _why_late(self, wait: _Wait) -> str:
        """Returns for whom a wait was in vain: workers that have set no key at all."""
        missing = [self._named(who) for who in self._workers if who not in self._came]
        return f"waited {wait.seconds:.0f} s for {', '.join(missing) or wait.key} to meet for torch.distributed"

    def _named(self, who: Party) -> str:
        """Returns a worker and its host, for messages."""
        return f"{who} on {self.hosts[who]}" if who in self.hosts else str(who)

    def _found(self, wait: _Wait) -> None:
        """Answers with the value that is there now."""
        self._answer(wait.src, wait.id, Found(value=self._values.get(wait.key)))

    def _answer(self, to: Party, id: int, answer: Found | Vain) -> None:
        """Sends an answer; a worker that is gone is told of elsewhere."""
        with contextlib.suppress(PeerLost):  # it is told of elsewhere
            self._transport.send(to, Envelope(Kind.REPLY, answer, id))
