"""Snapshots of simulated servers, as long as somebody trains.

When one is taken and what belongs to it is decided as in live runs (`paceline.core.fault_tolerance.snapshots`). What
differs: the keeper knows the versions of the servers at once, and a state travels as one message.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from paceline.core.coordination import control_messages as control
from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.fault_tolerance.snapshots import (
    AskVersions,
    SnapshotPause,
    SnapshotRounds,
    WantedCapture,
    WantedVersion,
)
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.checking.oracles.contributions import ShardRecount
    from paceline.sim.faulted_driver import FaultedDriver
    from paceline.sim.faults.links.lossy_links import LossyLinks

WEIGHTS, UPDATE, RECOUNT = "weights", "update", "recount"
"""Names of the parts of a state: the shard's weights, its update rule with all it remembers, the oracle's recount.

The recount has the version in its name, since states of live servers differ in their parts, too: an optimizer remembers
something after its first step. So parts of two states that are taken for one show.
"""


class SnapshotServer(Protocol):
    """Shows one server to those who take snapshots. `wanted`: which state of it is to be sent for a snapshot."""

    wanted: WantedCapture

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
    def after_replicated(self, party: SimulatedProcess, act: Callable[[], object]) -> None: ...


class Carried:
    """Wraps a value that travels with a state, is no vector, and costs no bytes."""

    __slots__ = ("value",)
    nbytes = 0

    def __init__(self, value: Any) -> None:
        self.value = value


class SimulatedSnapshots:
    """Takes snapshots of the servers `whole`, kept by `control`."""

    def __init__(self, whole: SnapshotServers, control: SimulatedProcess, every_s: float) -> None:
        self._whole, self._control = whole, control
        self._rounds = SnapshotRounds[SliceState](every_s)
        self._going = False
        self.taken: Callable[[dict[int, SliceState]], None] = lambda states: None
        """Called with the states of each complete snapshot, by shard."""

    def keep_on(self) -> None:
        """Takes snapshots every `every_s` seconds as long as somebody trains. It may be called again when
        workers join."""
        if not self._going:
            self._going = True
            self._whole.sim.heap.push(self._whole.sim.now, self._begin)

    # ---- what the coordinator asks and orders ----------------------------------------------------------------
    @property
    def copies(self) -> bool:
        """Returns True if each server copies its updates to the next one before it answers."""
        return self._whole.copied

    @property
    def available(self) -> bool:
        """Returns True once there is a snapshot to restore from."""
        return self._rounds.newest is not None

    @property
    def newest(self) -> dict[int, SliceState] | None:
        """Returns the states of the last complete snapshot, by shard; None before the first."""
        return self._rounds.newest

    def refuses(self, ready: control.Ready, servers: int) -> str:
        """Returns an empty text: `can_be_replaced` was asked before."""
        return ""

    def begin(self, plan: control.Plan) -> None:
        """Does nothing: snapshots are taken from the beginning."""

    def hold(self) -> None:
        """Keeps the newest snapshot; the one that is being taken is dropped, as a lost server has part of it."""
        if pause := self._rounds.hold():
            self._carry_out(pause)

    def release(self) -> None:
        """Takes snapshots again."""
        self._rounds.release()

    # ---- taken -----------------------------------------------------------------------------------------------
    def look(self, server: SnapshotServer) -> None:
        """Sends the server's state if it has reached the version that is wanted of it."""
        if server.wanted.keeps(0, server.version):
            state = state_of(server)
            there = (self._control, server.wanted.number, server.shard, state)
            self._whole.after_replicated(
                server.party,
                lambda: self._whole.streams.send(server.party, self._control, nbytes_of(state), self._captured, there),
            )

    def _begin(self) -> None:
        """Looks whether a snapshot may be taken now, as long as somebody trains."""
        self._going = any(party.here for party in self._whole.sim.world.workers)
        if self._going:
            self._carry_out(self._rounds.due())

    def _carry_out(self, step: AskVersions | WantedVersion | SnapshotPause) -> None:
        whole = self._whole
        match step:
            case AskVersions():
                versions = [server.version for server in whole.servers]
                self._carry_out(self._rounds.versions(range(len(versions)), versions))
            case WantedVersion():
                for server in whole.servers:
                    whole.streams.send(self._control, server.party, 0, self._want, (server, step))
            case SnapshotPause(seconds=seconds):
                whole.sim.heap.push(whole.sim.now + seconds, self._begin)

    def _want(self, server: SnapshotServer, wanted: WantedVersion) -> None:
        """Notes at a server which version is wanted; it may have that version already."""
        server.wanted.want(*wanted)
        self.look(server)

    def _captured(self, control: SimulatedProcess, number: int, shard: int, state: SliceState) -> None:
        """Takes the state of one shard; the last one completes the snapshot."""
        if self._rounds.arrived(number, shard, state):
            self._carry_out(self._rounds.ended())
            self.taken(self._rounds.newest or {})


def state_of(server: SnapshotServer) -> SliceState:
    """Returns all the state of a server's role, and the oracle's recount of it."""
    role, invariants = server.party.role, server.whole.sim.invariants
    recount = Carried(invariants.recount(server.party) if invariants else None)
    own = f"{RECOUNT} {server.version}"
    vectors = {WEIGHTS: role.w, UPDATE: Carried(copy.deepcopy(role.update)), own: recount}
    return SliceState(vectors, {"tables": role.state_dict(), "version": server.version})


def recount_in(state: SliceState) -> ShardRecount:
    """Returns the oracle's recount of a state. Raises ValueError where parts of several states are in it."""
    [recount] = [part.value for name, part in state.vectors.items() if name.startswith(RECOUNT)]
    return cast("ShardRecount", recount)


def nbytes_of(state: SliceState) -> int:
    """Returns the bytes that a state takes on the network."""
    return sum(v.nbytes for v in state.vectors.values())
