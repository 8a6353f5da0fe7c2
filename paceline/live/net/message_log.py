"""What a party's connections and messages are, told as they happen: `-v` and `-vv`.

A line is `key=value` pairs, one event each, by way of Python's logging (`paceline.live`). Where the user's own program
does not say where that goes, it goes to standard error, which is `logs/worker-0.log` and the like in a run's folder:

    09:41:07.123 worker 0 connect to="server 0" way=shared_memory
    09:41:07.166 worker 0 send to="server 0" message=Push kind=CALL id=3 slice=0 clock=1 samples=32 g=[1200]

The rule of this file: it is all about messages and has nothing of their contents but numbers that are single; a party
that is not asked to tell has its own transport, with nothing around it.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from paceline.core.coordination.party import Party
from paceline.core.message import scalar_fields, vector_fields
from paceline.live.protocol.transport import Envelope, Handler, LossCause, Transport

CONNECTIONS, MESSAGES = 1, 2
TEXT_MAX = 120
"""Characters of a text that stand in a line; of a longer one stands the length."""
PLAIN = re.compile(r"[\w.:/\[\]-]+")
"""Texts that need no quotes."""
log = logging.getLogger("paceline.live")


def with_logging(transport: Transport, verbose: int, path: Path | None = None) -> Transport:
    """Returns `transport`, wrapped to log connections (`verbose` >= 1) and every message (2), into `path` if given."""
    if verbose < CONNECTIONS:
        return transport
    _listen(path)
    return cast(Transport, LoggingTransport(transport, messages=verbose >= MESSAGES))


def _listen(path: Path | None) -> None:
    """Adds a handler, to the file or standard error, unless the user's program has configured logging."""
    log.setLevel(logging.DEBUG)
    if not log.hasHandlers():
        handler = logging.FileHandler(path, delay=True) if path else logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
        log.addHandler(handler)


class LoggingTransport:
    """Wraps a transport and logs its calls; methods that are not here are the transport's own."""

    def __init__(self, transport: Transport, *, messages: bool) -> None:
        self._transport, self._messages = transport, messages
        self.me = transport.me

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def open(self, handler: Handler) -> None:
        """Opens the transport with a handler that logs what arrives."""
        self._transport.open(cast(Handler, LoggingHandler(handler, self.me, self._messages)))
        self._tell("open", address=self._transport.address)

    def connect(self, party: Party, address: str, incarnation: int = 0) -> None:
        """Connects, then logs by which way the party is reached."""
        self._transport.connect(party, address, incarnation)
        self._tell("connect", to=party, address=address, incarnation=incarnation, way=self._transport.way_to(party))

    def drop(self, party: Party, incarnation: int, why: str) -> None:
        """Logs the reason, then drops the connection."""
        self._tell("drop", whom=party, incarnation=incarnation, why=why)
        self._transport.drop(party, incarnation, why)

    def send(self, to: Party, envelope: Envelope) -> None:
        """Logs the message, then sends it."""
        if self._messages:
            log.debug("%s send to=%s %s", self.me, _text(to), _described(envelope))
        self._transport.send(to, envelope)

    def close(self) -> None:
        """Logs the bytes of the whole run, then closes."""
        sent, received = self._transport.traffic()
        self._tell("close", bytes_sent=sent, bytes_received=received)
        self._transport.close()

    def _tell(self, event: str, **facts: object) -> None:
        """Logs one event of a connection."""
        log.info("%s %s %s", self.me, event, " ".join(f"{key}={_text(value)}" for key, value in facts.items()))


class LoggingHandler:
    """Wraps a handler and logs what it is given."""

    def __init__(self, handler: Handler, me: Party, messages: bool) -> None:
        self._handler, self._me, self._messages = handler, me, messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Logs a message that has arrived, then handles it."""
        if self._messages:
            log.debug("%s got from=%s %s", self._me, _text(src), _described(envelope))
        self._handler.deliver(src, envelope)

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        """Logs a lost connection, then handles it."""
        log.info("%s lost whom=%s why=%s", self._me, _text(src), _text(why))
        self._handler.lost(src, why, cause)


def _described(envelope: Envelope) -> str:
    """Returns kind, identifiers and contents of a message as `key=value` pairs."""
    return " ".join(f"{key}={_text(value)}" for key, value in _facts(envelope))


def _facts(envelope: Envelope) -> Iterator[tuple[str, object]]:
    """Yields names and values: of scalars the values, of vectors the lengths in brackets."""
    message = envelope.message
    cls = type(message)
    yield "message", cls.__name__
    yield "kind", envelope.kind.name
    yield "id", envelope.id
    yield "slice", envelope.slice
    if envelope.seconds_receiving:
        yield "ms_receiving", round(1000 * envelope.seconds_receiving, 3)
    yield from ((name, getattr(message, name)) for name in scalar_fields(cls))
    yield from ((name, f"[{len(getattr(message, name))}]") for name in vector_fields(cls))


def _text(value: object) -> str:
    """Returns single numbers and short words as they are, and of all else the length."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes | tuple | list | dict) and not isinstance(value, Party):
        return f"<{len(value)}>"
    text = str(value)
    if len(text) > TEXT_MAX:
        return f"<{len(text)}>"
    return text if PLAIN.fullmatch(text) else json.dumps(text)
