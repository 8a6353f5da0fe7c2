"""A coordinator of two workers and a server that is recorded, and one that is replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.core.collective import Choice
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import RunRules, RunSize
from paceline.core.coordination.party import Party, server, worker
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.effects import Reply
from paceline.core.message import message
from paceline.core.role import Role
from paceline.core.sharding import lay_out
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.executor import CoordinatorListener
from paceline.live.coordinator.inputs import CoordinatorObserver
from paceline.live.coordinator.planning import RunChoices
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind, Transport
from paceline.live.recording.coordinator_recorder import CoordinatorRecorder
from paceline.live.recording.coordinator_replay import CoordinatorReplay, RecordedInput, inputs_of
from paceline.live.recording.recording_file import RecordingWriter, read_recording
from tests.live.scripted_parties import ready

W0, W1, S0 = worker(0), worker(1), server(0)
EVERYBODY = (S0, W0, W1)


@message("test_recording.Count")
class Count:
    n: int


class Tally(Role):
    """Counts what it is asked."""

    asked = 0

    def on(self, now: float, src: int, message: Any) -> Iterator[Reply]:
        self.asked += message.n
        yield Reply(src, Count(n=self.asked))


class Keeping:
    """Snapshots that can be kept; it says what they are told to do."""

    copies, available = False, False

    def __init__(self) -> None:
        self.told: list[str] = []

    def refuses(self, ready: control.Ready, servers: int) -> str:
        return ""

    def begin(self, plan: control.Plan) -> None:
        self.told.append("begin")

    def hold(self) -> None:
        self.told.append("hold")

    def release(self) -> None:
        self.told.append("release")


def make(
    transport: Transport,
    node: Node,
    listener: CoordinatorListener,
    snapshots: Snapshots,
    observer: CoordinatorObserver,
) -> Coordinator:
    return Coordinator(
        transport,
        node,
        listener,
        RunSize(workers=2, servers=1),
        RunChoices(
            make_role=lambda plan, place: Tally(None, place),
            lay_out=lambda ready, hellos: (lay_out(ready[0].length, len(hellos), 4), "a reason"),
            choose_allreduce=lambda ready, hellos, servers: Choice("servers", ""),
        ),
        RunRules(dead_after_s=5.0),
        snapshots,
        observer=observer,
    )


class Wire:
    """A transport that keeps what is sent; closing a connection reports the loss at once, as live ones do."""

    me, address = Party("coordinator"), ""

    def __init__(self) -> None:
        self.sent: list[tuple[Party, Envelope]] = []
        self.coordinator: Coordinator | None = None

    def send(self, to: Party, envelope: Envelope) -> None:
        self.sent.append((to, envelope))

    def call_later(self, seconds: float, action: Any) -> None:
        if not seconds:
            action()

    def drop(self, party: Party, incarnation: int, why: str) -> None:
        assert self.coordinator is not None
        self.coordinator.lost(party, why)


class Told:
    """What the supervisor hears."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def recorded(self, record: Any) -> None:
        self.records.append(record)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class RecordedRun:
    """A coordinator whose inputs a test makes, recorded in `path`."""

    def __init__(self, path: Path, bytes_max: int = 1 << 20) -> None:
        self.path, self.keeping, self.told = path, Keeping(), Told()
        self.recorder = CoordinatorRecorder(RecordingWriter(path, bytes_max, {"party": "coordinator"}))
        self.wire: Any = Wire()
        transport = self.recorder.transport(self.wire)
        node = Node(transport, None, clock=self.recorder.clock)  # type: ignore[arg-type]
        listener: Any = self.told
        self.coordinator = make(transport, node, listener, self.recorder.snapshots(self.keeping), self.recorder)
        self.wire.coordinator = self.coordinator

    def say(self, src: Party, message: Any, kind: Kind = Kind.CONTROL, id: int = 0) -> None:
        self.coordinator.deliver(src, Envelope(kind, message, id))

    def bring_up(self) -> None:
        """Everything up to the first step."""
        for who in EVERYBODY:
            self.say(who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu"))
        for who in (W0, W1):
            self.say(who, ready())
        for who in EVERYBODY:
            self.say(who, control.Prepared())

    def inputs(self) -> list[RecordedInput]:
        self.recorder.close()
        _, *lines = read_recording(self.path)
        return list(inputs_of(lines))


def replay() -> CoordinatorReplay:
    return CoordinatorReplay(make, Keeping())
