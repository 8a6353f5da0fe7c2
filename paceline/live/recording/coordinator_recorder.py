"""Records the coordinator of a live run: its inputs with their times, and what it decided.

    line                              meaning
    {"format": 1, "party": ...}       the header: the configuration, and what else the coordinator is made of
    ["kept", available]               from now on a snapshot is available, or is not
    ["in", at, kind, values...]       an input (`live/coordinator/inputs.py`); `at`: seconds since the recorder began
    ["nested", at, kind, values...]   an input that came while the decisions of the input before were carried out
    ["out", [...]]                    what was decided and sent because of it

An input has one time: while it is handled the coordinator's clock stands still, and the answer to whether a snapshot is
available stays the same. So a replay needs neither a clock nor snapshots.

Messages have no vectors and no secrets: tokens and keys belong to handshakes, which are over when a message arrives.
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from typing import Any, cast

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import CoordinatorDecision
from paceline.core.coordination.party import Party
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.message import plane_of
from paceline.live.coordinator.inputs import InputKind, NoObserver
from paceline.live.protocol.transport import Envelope, Kind, Transport
from paceline.live.recording.message_text import actions_text, envelope_text, plain, raised
from paceline.live.recording.recording_file import RecordingWriter


def carries_records(kind: InputKind, values: tuple[Any, ...]) -> bool:
    """Returns True for an input that brings trace records, which are then not written down a second time."""
    return kind is InputKind.MESSAGE and isinstance(values[1].message, control.Records)


def sent_by_role(to: Party, envelope: Envelope) -> list[Any]:
    """Returns the output for a message that no decision holds: one of the coordinator's role, or of the rendezvous.

    It is empty for messages that decisions hold, and for state that others read.
    """
    told = envelope.kind != Kind.CONTROL and plane_of(type(envelope.message)) in ("scheme", "collective")
    return [{"Send": {"to": str(to), "message": envelope_text(envelope)}}] if told else []


class CoordinatorRecorder:
    """Observes one coordinator, and stands around its clock, its transport and its snapshots."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._began = time.monotonic()
        self._thread = -1  # that handles an input just now
        self._at = 0.0
        self._outputs: list[Any] = []
        self._folds = False
        self._available = self._told_available = False
        self._snapshots: Snapshots | None = None
        self._has_begun = False

    # ---- what the coordinator is given -------------------------------------------------------------------
    def clock(self) -> float:
        """Returns seconds: of the input that this thread handles, or since this recorder began; 0 until the first."""
        if self.handling or not self._has_begun:
            return self._at
        return time.monotonic() - self._began

    def transport(self, transport: Transport) -> Transport:
        """Returns `transport`, of which the messages of the coordinator's role are recorded."""
        return cast(Transport, _RecordedTransport(transport, self))

    def snapshots(self, snapshots: Snapshots) -> Snapshots:
        """Returns `snapshots`, which do not change while an input is handled."""
        self._snapshots = snapshots
        return _SteadySnapshots(snapshots, self)

    @property
    def handling(self) -> bool:
        """Returns True on the thread that handles an input just now."""
        return self._thread == threading.get_ident()

    @property
    def available(self) -> bool:
        """Returns True if a snapshot was available when this input began."""
        return self._available

    # ---- what it tells -----------------------------------------------------------------------------------
    def input(self, kind: InputKind, *values: Any) -> AbstractContextManager[None]:
        nested = self.handling
        if not nested:
            self._begin(kind, values)
        self._writer.append(["nested" if nested else "in", self._at, kind.value, *map(plain, values)])
        return _NestedInput(self) if nested else _OuterInput(self)

    def decided(self, decision: CoordinatorDecision) -> None:
        self.note(actions_text(decision.actions, folds_records=self._folds))

    def note(self, outputs: list[Any]) -> None:
        """Adds to what follows from the present input."""
        self._outputs += outputs

    def end(self) -> None:
        """Writes down what followed from the present input, which has been handled."""
        self._writer.append(["out", self._outputs], flush=False)
        self._thread = -1

    def _begin(self, kind: InputKind, values: tuple[Any, ...]) -> None:
        self._at = round(time.monotonic() - self._began, 6)
        self._has_begun, self._thread = True, threading.get_ident()
        self._outputs, self._folds = [], carries_records(kind, values)
        self._available = self._snapshots is not None and self._snapshots.available
        if self._available != self._told_available:
            self._told_available = self._available
            self._writer.append(["kept", self._available], flush=False)

    def close(self) -> None:
        self._writer.close()


class _NestedInput(AbstractContextManager[None]):
    """Lasts as long as an input is handled that came within another one."""

    def __init__(self, recorder: CoordinatorRecorder) -> None:
        self._recorder = recorder

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._recorder.note([raised(error)])


class _OuterInput(_NestedInput):
    """Lasts as long as an input is handled."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        super().__exit__(kind, error, traceback)
        self._recorder.end()


class NoCoordinatorRecorder(NoObserver):
    """Stands in for the recorder of a run that is not recorded: it changes nothing."""

    clock = staticmethod(time.monotonic)

    def transport(self, transport: Transport) -> Transport:
        return transport

    def snapshots(self, snapshots: Snapshots) -> Snapshots:
        return snapshots

    def close(self) -> None:
        """Does nothing."""


class _RecordedTransport:
    """Wraps the coordinator's transport; methods that are not here are the transport's own."""

    def __init__(self, transport: Transport, recorder: CoordinatorRecorder) -> None:
        self._transport, self._recorder, self.me = transport, recorder, transport.me

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def send(self, to: Party, envelope: Envelope) -> None:
        if self._recorder.handling:
            self._recorder.note(sent_by_role(to, envelope))
        self._transport.send(to, envelope)


class _SteadySnapshots:
    """Wraps snapshots; while an input is handled `available` is what it was when the input came."""

    def __init__(self, snapshots: Snapshots, recorder: CoordinatorRecorder) -> None:
        self._snapshots, self._recorder = snapshots, recorder

    @property
    def copies(self) -> bool:
        return self._snapshots.copies

    @property
    def available(self) -> bool:
        return self._recorder.available if self._recorder.handling else self._snapshots.available

    def refuses(self, ready: control.Ready, servers: int) -> str:
        return self._snapshots.refuses(ready, servers)

    def begin(self, plan: control.Plan) -> None:
        self._snapshots.begin(plan)

    def hold(self) -> None:
        self._snapshots.hold()

    def release(self) -> None:
        self._snapshots.release()
