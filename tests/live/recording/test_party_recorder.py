"""What a worker, a server or the evaluator is sent and sends is recorded, and what it does stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, server, worker
from paceline.core.paramserver.gated_server import Push
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from paceline.live.recording.party_recorder import party_path, with_recording
from paceline.live.recording.recording_file import FOLDER, read_recording
from paceline.live.recording.transcript import party_line


class Wire:
    """A transport and its handler in one: it keeps what it is told."""

    me, address = worker(0), "here"

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.handler: Any = None

    def open(self, handler: Any) -> None:
        self.handler = handler

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.told.append((name, *values))


def test_headers_are_recorded_and_passed_on(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    wire, own = Wire(), Wire()
    transport = with_recording(wire, tmp_path, 1, 1 << 20)  # type: ignore[arg-type]
    transport.open(own)  # type: ignore[arg-type]
    push = Envelope(Kind.CALL, Push(g=np.ones(1200, np.float32), clock=3, samples=8), 5)
    records = Envelope(Kind.CONTROL, control.Records(lines="x" * 1000))
    transport.connect(server(0), "there", 2)
    transport.send(server(0), push)
    wire.handler.deliver(COORDINATOR, records)
    wire.handler.lost(server(0), "reset", LossCause.CLOSED)
    transport.close()
    assert [name for name, *_ in wire.told] == ["connect", "send", "close"]
    assert own.told == [("deliver", COORDINATOR, records), ("lost", server(0), "reset", LossCause.CLOSED)]
    assert transport.address == "here"
    header, *lines = read_recording(party_path(tmp_path, worker(0), 1))
    assert header == {"format": 1, "party": "worker 0", "incarnation": 1}
    assert [(what, who, *rest) for what, _, who, *rest in lines] == [
        ("connected", "server 0", 2),
        (
            *("sent", "server 0"),
            {
                "clocked.Push": {"clock": 3, "samples": 8, "data": [], "unused": [], "g": "[1200]"},
                "kind": "CALL",
                "id": 5,
            },
        ),
        ("got", "coordinator", {"control.Records": {"lines": "<1000>"}}),
        ("lost", "server 0", "reset", "CLOSED"),
    ]
    assert party_line(lines[1]).split(" s  ")[1] == "sent to server 0: Push clock=3 samples=8 g=[1200] kind=CALL id=5"
    assert party_line(lines[3]).endswith("lost server 0 reset CLOSED")


def test_where_the_folder_of_the_run_is_not_there_nothing_is_recorded(tmp_path: Path) -> None:
    """As on another host."""
    wire: Any = Wire()
    assert with_recording(wire, tmp_path, 0, 1 << 20) is wire
