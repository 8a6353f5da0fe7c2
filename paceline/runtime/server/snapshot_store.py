"""Keeps the newest snapshot of all servers on the supervisor's disk, from which a lost server is replaced.

Every `every_s` seconds each slice is kept at one version, two ahead of where the servers are, and fetched from here,
while training goes on: one slice after the other, so that no party needs room for more than one of them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.errors import PacelineError, Stopped
from paceline.core.fault_tolerance.replication import SliceState
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE, PublishedState
from paceline.live.protocol.transport import Envelope, Kind, Transport
from paceline.live.state.capture_request import CaptureRequest
from paceline.live.state.slice_state import (
    AHEAD,
    SNAPSHOT,
    check_one_capture,
    fetch,
    kept,
    publish_state,
)
from paceline.runtime.checkpointing.disk_buffer import DiskBuffer, on_disk, unspooled
from paceline.runtime.server.snapshot_policy import SnapshotPolicy

HELD_SECONDS = 0.1
"""Seconds between two looks whether the servers are all in place again."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Holds the state of each slice, by number. Raises Mixed where they are of several captures."""

    slices: dict[int, SliceState]

    def __post_init__(self) -> None:
        check_one_capture(state.facts for state in self.slices.values())

    def vector(self, name: str, number: int) -> Any:
        """Returns one vector of slice `number`, read back from disk."""
        return unspooled(self.slices[number].vectors[name])

    def facts(self, nothing: Any, number: int) -> PublishedState:
        """Returns the facts of slice `number` as a server that is restored reads them."""
        state = self.slices[number]
        return publish_state(state.facts, state.vectors, nothing)


class SnapshotStore(SnapshotPolicy):
    """Keeps the snapshots of one run. `every_s`: seconds between two snapshots; 0 for none. `copies`: servers keep
    copies, too."""

    def __init__(self, transport: Transport, node: Node, every_s: float, *, copies: bool = False) -> None:
        super().__init__(every_s, copies=copies)
        self._transport, self._node = transport, node
        self._snapshot: _Snapshot | None = None
        self._shown: list[str] = []
        self._request = CaptureRequest(node, SNAPSHOT, lambda message: self._tell_all(message))
        self._held = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._homes: Sequence[tuple[int, int]] = ()

    # ---- for the coordinator -----------------------------------------------------------------------------
    def begin(self, plan: control.Plan) -> None:
        """Starts the thread, when the plan says which server has which slice."""
        self._homes = plan.layout.homes()
        if not self._every_s:
            return
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._thread.start()

    @property
    def available(self) -> bool:
        """Returns True once there is a snapshot."""
        return self._snapshot is not None

    def hold(self) -> None:
        """Takes no snapshot from now on: a server is being replaced. One that ends meanwhile is dropped."""
        with self._lock:
            self._held = True

    def release(self) -> None:
        """Takes snapshots again."""
        with self._lock:
            self._held = False

    def close(self) -> None:
        """Ends the thread. It must be called before the transport is closed."""
        self._over.set()
        self._node.stop()
        while self._thread is not None and self._thread.is_alive():
            self._node.stop()  # again: one may look at others when a run is over, and so this one may begin to
            self._thread.join(0.05)

    # ---- on its own thread -------------------------------------------------------------------------------
    def _run(self) -> None:
        """Takes snapshots until `close`; a failure of one, such as a lost server, only drops it."""
        ahead = 0  # the first one at once: until then a lost server ends the run
        while not self._over.is_set():
            if self._held:  # a server that is being replaced has nothing to be kept yet
                self._over.wait(HELD_SECONDS)
                continue
            with contextlib.suppress(PacelineError, Stopped):  # a server was lost meanwhile
                self._take(self._capture(ahead))
                ahead = AHEAD
            self._over.wait(self._every_s)

    def _capture(self, ahead: int) -> _Snapshot:
        """Asks all servers for one version, and fetches slice by slice to disk."""
        self._request.begin(self._servers, ahead)
        slices: dict[int, SliceState] = {}
        spool = DiskBuffer(self._node.out.memory)
        for number, (home, at) in enumerate(self._homes):
            (state,) = fetch(self._node, party.server(home), [at], SNAPSHOT)
            self._request.check([state.facts])
            slices[number] = on_disk(state, spool)
        self._request.forget()
        return _Snapshot(slices)

    @property
    def _servers(self) -> list[party.Party]:
        """Returns the servers that hold slices."""
        return [party.server(shard) for shard in sorted({home for home, _ in self._homes})]

    def _tell_all(self, message: control.Capture) -> None:
        """Sends a capture request to all servers."""
        for server in self._servers:
            self._transport.send(server, Envelope(Kind.CONTROL, message))

    def _take(self, snapshot: _Snapshot) -> None:
        """Publishes a snapshot in the place of the former one, unless a server is being replaced."""
        with self._lock:
            if self._held:
                return
            self._snapshot = snapshot
            names = {name for state in snapshot.slices.values() for name in state.vectors}
            self._node.published.withdraw(self._shown)
            self._shown = [kept(SNAPSHOT, name) for name in (STATE, *names)]
            self._node.published[kept(SNAPSHOT, STATE)] = functools.partial(
                snapshot.facts, self._node.out.memory.empty(0)
            )
            for name in names:
                self._node.published[kept(SNAPSHOT, name)] = functools.partial(snapshot.vector, name)
