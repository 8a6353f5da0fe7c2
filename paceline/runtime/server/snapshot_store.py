"""Keeps the newest snapshot of all servers on the supervisor's disk, from which a lost server is replaced.

`paceline.core.fault_tolerance.snapshots` says when one is taken and what belongs to it. Here its slices are fetched,
while training goes on: one after the other, so that no party needs room for more than one of them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Sequence
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.errors import PacelineError, Stopped
from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.fault_tolerance.snapshots import FORGET, AskVersions, SnapshotPause, SnapshotRounds
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE, PublishedState
from paceline.live.protocol.transport import Envelope, Kind, Transport
from paceline.live.state.slice_state import CAPTURE, SNAPSHOT, VERSION, fetch, kept, publish_state
from paceline.runtime.checkpointing.disk_buffer import DiskBuffer, on_disk, unspooled
from paceline.runtime.server.snapshot_policy import SnapshotPolicy


class SnapshotStore(SnapshotPolicy):
    """Keeps the snapshots of one run. `every_s`: seconds between two snapshots; 0 for none. `copies`: servers keep
    copies, too."""

    def __init__(self, transport: Transport, node: Node, every_s: float, *, copies: bool = False) -> None:
        super().__init__(every_s, copies=copies)
        self._transport, self._node = transport, node
        self._rounds = SnapshotRounds[SliceState](every_s)  # the coordinator's thread and its own use it, by the lock
        self._shown: list[str] = []
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
        return self._rounds.newest is not None

    def hold(self) -> None:
        """Takes no snapshot from now on: a server is being replaced. One that ends meanwhile is dropped."""
        with self._lock:
            self._rounds.hold()

    def release(self) -> None:
        """Takes snapshots again."""
        with self._lock:
            self._rounds.release()

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
        while not self._over.is_set():
            self._over.wait(self._round().seconds)

    def _round(self) -> SnapshotPause:
        """Takes a snapshot if one may be taken now; returns the pause until the next look."""
        step: AskVersions | SnapshotPause | None = self._rounds.due()
        if isinstance(step, AskVersions):
            step = None
            with contextlib.suppress(PacelineError, Stopped):  # a server was lost meanwhile
                step = self._capture()
        with self._lock:
            return step or self._rounds.ended()

    def _capture(self) -> SnapshotPause | None:
        """Asks all servers for one version, fetches slice by slice to disk, and publishes them when all are there.

        Returns a pause, having fetched nothing, if a server was lost while they were asked how far they are.
        """
        versions = [int(self._node.version_of(server, VERSION)) for server in self._servers]
        with self._lock:
            wanted = self._rounds.versions(range(len(self._homes)), versions)
        if isinstance(wanted, SnapshotPause):
            return wanted
        self._tell_all(control.Capture(version=wanted.version, purpose=SNAPSHOT, number=wanted.number))
        spool = DiskBuffer(self._node.out.memory)
        for number, (home, at) in enumerate(self._homes):
            (state,) = fetch(self._node, party.server(home), [at], SNAPSHOT)
            self._take(number, on_disk(state, spool))
        self._tell_all(control.Capture(version=FORGET, purpose=SNAPSHOT))
        return None

    @property
    def _servers(self) -> list[party.Party]:
        """Returns the servers that hold slices."""
        return [party.server(shard) for shard in sorted({home for home, _ in self._homes})]

    def _tell_all(self, message: control.Capture) -> None:
        """Sends a capture request to all servers."""
        for server in self._servers:
            self._transport.send(server, Envelope(Kind.CONTROL, message))

    def _take(self, number: int, state: SliceState) -> None:
        """Takes the state of slice `number`; the last one publishes the snapshot in the place of the former one."""
        with self._lock:
            if self._rounds.arrived(state.facts.get(CAPTURE, 0), number, state):
                self._publish()

    def _publish(self) -> None:
        """Publishes the newest snapshot: the facts of each slice, and its vectors, read back from disk."""
        slices = self._rounds.newest
        assert slices is not None

        def facts(number: int) -> PublishedState:
            """Returns the facts of slice `number` as a server that is restored reads them."""
            return publish_state(slices[number].facts, slices[number].vectors, self._node.out.memory.empty(0))

        def vector(name: str, number: int) -> Any:
            return unspooled(slices[number].vectors[name])

        names = {name for state in slices.values() for name in state.vectors}
        self._node.published.withdraw(self._shown)
        self._shown = [kept(SNAPSHOT, name) for name in (STATE, *names)]
        self._node.published[kept(SNAPSHOT, STATE)] = facts
        for name in names:
            self._node.published[kept(SNAPSHOT, name)] = functools.partial(vector, name)
