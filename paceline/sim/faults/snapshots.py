"""Snapshots of simulated servers: all of them at one version, every `every_s` seconds, while somebody trains.

A snapshot counts when the states of all servers have arrived. One that is being taken when a server is lost is dropped.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from paceline.core.coordination import control_messages as control
from paceline.core.fault_tolerance.replication import SliceState
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver
    from paceline.sim.faults.lossy_links import LossyLinks

WEIGHTS, UPDATE, RECOUNT = "weights", "update", "recount"
"""Names of the parts of a state: the shard's weights, its update rule with all it remembers, the oracle's recount."""
AHEAD = 2
"""A snapshot is of a version this far ahead, so that each server hears of it before it gets there."""


class SnapshotServer(Protocol):
    """Shows one server to those who take snapshots. `wanted`: number and version of the next one, or None."""

    wanted: tuple[int, int] | None

    @property
    def party(self) -> SimulatedProcess: ...
    @property
    def shard(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def whole(self) -> SnapshotServers: ...


class SnapshotServers(Protocol):
    """Shows all servers to those who take snapshots. `copied`: each copies its updates to the next one."""

    @property
    def sim(self) -> FaultedDriver: ...
    @property
    def streams(self) -> LossyLinks: ...
    @property
    def copied(self) -> bool: ...
    @property
    def servers(self) -> Sequence[SnapshotServer]: ...


class Carried:
    """Wraps a value that travels with a state, is no vector, and costs no bytes."""

    __slots__ = ("value",)
    nbytes = 0

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Holds the states of all servers at one version, by shard. `number` tells snapshots under way apart."""

    number: int
    states: dict[int, SliceState]


class SimulatedSnapshots:
    """Takes snapshots of the servers `whole`, kept by `control`. `newest`: the last complete one, or None."""

    def __init__(self, whole: SnapshotServers, control: SimulatedProcess, every_s: float) -> None:
        self._whole, self._control, self._every_s = whole, control, every_s
        self.newest: Snapshot | None = None
        self._coming = Snapshot(0, {})
        self._capturing = self._held = False

    def keep_on(self) -> None:
        """Takes snapshots every `every_s` seconds as long as somebody trains. It may be called again when
        workers join."""
        if not self._capturing:
            self._capturing = True
            self._whole.sim.heap.push(self._whole.sim.now, self._capture)

    # ---- what the coordinator asks and orders ----------------------------------------------------------------
    @property
    def copies(self) -> bool:
        """Returns True if each server copies its updates to the next one before it answers."""
        return self._whole.copied

    @property
    def available(self) -> bool:
        """Returns True once there is a snapshot to restore from."""
        return self.newest is not None

    def refuses(self, ready: control.Ready, servers: int) -> str:
        """Returns an empty text: `can_be_replaced` was asked before."""
        return ""

    def begin(self, plan: control.Plan) -> None:
        """Does nothing: snapshots are taken from the beginning."""

    def hold(self) -> None:
        """Keeps the newest snapshot; the one that is being taken is dropped, as a lost server has part of it."""
        self._held = True
        self.break_off()

    def release(self) -> None:
        """Takes snapshots again."""
        self._held = False

    # ---- taken -----------------------------------------------------------------------------------------------
    def break_off(self) -> None:
        """Drops the snapshot that is being taken; its states that still arrive do not count."""
        self._coming = Snapshot(self._coming.number + 1, {})

    def look(self, server: SnapshotServer) -> None:
        """Sends the server's state if it has reached the version that is wanted of it."""
        if server.wanted and server.version >= server.wanted[1]:
            (number, _), server.wanted = server.wanted, None
            state = state_of(server)
            there = (self._control, number, server.shard, state)
            self._whole.streams.send(server.party, self._control, nbytes_of(state), self._captured, there)

    def _capture(self) -> None:
        """Asks all servers for their state at one version that none has passed, and schedules the next snapshot."""
        whole = self._whole
        self._capturing = any(party.here for party in whole.sim.world.workers)
        if not self._capturing:
            return
        whole.sim.heap.push(whole.sim.now + self._every_s, self._capture)
        if self._held:
            return
        # The very first snapshot is of now: until it is complete, a lost server would end the run.
        wanted = max(server.version for server in whole.servers) + (AHEAD if self.newest else 0)
        self.break_off()
        for server in whole.servers:
            whole.streams.send(self._control, server.party, 0, self._want, (server, self._coming.number, wanted))

    def _want(self, server: SnapshotServer, number: int, version: int) -> None:
        """Notes at a server which version is wanted; it may have that version already."""
        server.wanted = number, version
        self.look(server)

    def _captured(self, control: SimulatedProcess, number: int, shard: int, state: SliceState) -> None:
        """Takes the state of one shard; the last one completes the snapshot. States of a snapshot that was dropped are
        ignored."""
        if self._held or number != self._coming.number:
            return
        self._coming.states[shard] = state
        if len(self._coming.states) == len(self._whole.servers):
            self.newest = self._coming


def state_of(server: SnapshotServer) -> SliceState:
    """Returns all the state of a server's role, and the oracle's recount of it."""
    role, invariants = server.party.role, server.whole.sim.invariants
    recount = Carried(invariants.recount(server.party) if invariants else None)
    vectors = {WEIGHTS: role.w, UPDATE: Carried(copy.deepcopy(role.update)), RECOUNT: recount}
    return SliceState(vectors, {"tables": role.state_dict(), "version": server.version})


def nbytes_of(state: SliceState) -> int:
    """Returns the bytes that a state takes on the network."""
    return sum(v.nbytes for v in state.vectors.values())
