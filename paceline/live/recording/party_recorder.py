"""Records what a worker, a server or the evaluator is sent and sends: the headers of messages, with their times.

    ["connected", at, party, incarnation]    a connection to another party
    ["got", at, party, message]              a message, before it is handled
    ["sent", at, party, message]             a message, before it leaves
    ["lost", at, party, why, cause]          a connection is gone

`at` is in seconds since the recorder began. Of vectors only the lengths are kept, and of long texts too. These
recordings are read (`paceline replay RUN --party worker-0`), and not replayed: what a worker does depends on its loop.
`party_decisions.py` records what can be replayed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

from paceline.core.coordination.party import Party
from paceline.live.protocol.transport import Envelope, Handler, LossCause, Transport
from paceline.live.recording.message_text import envelope_text
from paceline.live.recording.recording_file import FOLDER, SUFFIX, RecordingWriter

TEXT_MAX = 200
"""Characters of a text; of a longer one, such as records of the trace, only the length is kept."""


def party_path(folder: Path, who: Party, incarnation: int, suffix: str = SUFFIX) -> Path:
    """Returns the file of one incarnation of a party in the folder of a run, of messages or with another `suffix`."""
    return folder / FOLDER / f"{str(who).replace(' ', '-')}.{incarnation}{suffix}"


def with_recording(transport: Transport, folder: Path, incarnation: int, bytes_max: int) -> Transport:
    """Returns `transport`, recorded below `folder` if that run's recordings can be reached from this host.

    Of a recording that becomes too long the last part is kept.
    """
    path = party_path(folder, transport.me, incarnation)
    if not path.parent.is_dir():
        return transport
    header = {"party": str(transport.me), "incarnation": incarnation}
    writer = RecordingWriter(path, bytes_max, header, keeps="last")
    return cast(Transport, _RecordingTransport(transport, writer))


class _Lines:
    """Writes the lines of one party."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer, self._began = writer, time.monotonic()
        self.close = writer.close

    def add(self, what: str, party: Party, *values: Any, flush: bool = True) -> None:
        line = [what, round(time.monotonic() - self._began, 6), str(party), *values]
        self._writer.append(line, flush=flush)

    def message(self, what: str, party: Party, envelope: Envelope, *, flush: bool) -> None:
        text = envelope_text(envelope)
        name, fields = next(iter(text.items()))
        text[name] = {field: _short(value) for field, value in fields.items()}
        self.add(what, party, text, flush=flush)


def _short(value: Any) -> Any:
    long = isinstance(value, str | list | tuple) and len(value) > TEXT_MAX
    return f"<{len(value)}>" if long else value


class _RecordingTransport:
    """Wraps a transport; methods that are not here are the transport's own."""

    def __init__(self, transport: Transport, writer: RecordingWriter) -> None:
        self._transport, self._lines, self.me = transport, _Lines(writer), transport.me

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def open(self, handler: Handler) -> None:
        self._transport.open(cast(Handler, _RecordingHandler(handler, self._lines)))

    def connect(self, party: Party, address: str, incarnation: int = 0) -> None:
        self._transport.connect(party, address, incarnation)
        self._lines.add("connected", party, incarnation)

    def send(self, to: Party, envelope: Envelope) -> None:
        self._lines.message("sent", to, envelope, flush=False)
        self._transport.send(to, envelope)

    def close(self) -> None:
        self._transport.close()
        self._lines.close()


class _RecordingHandler:
    """Wraps a handler; methods that are not here are the handler's own."""

    def __init__(self, handler: Handler, lines: _Lines) -> None:
        self._handler, self._lines = handler, lines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    def deliver(self, src: Party, envelope: Envelope) -> None:
        self._lines.message("got", src, envelope, flush=True)
        self._handler.deliver(src, envelope)

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        self._lines.add("lost", src, why, cause.name)
        self._handler.lost(src, why, cause)
