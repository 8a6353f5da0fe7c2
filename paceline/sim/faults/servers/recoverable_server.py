"""One incarnation of a server that can be lost, and what it exchanges with its neighbours.

    its role answers         the answer waits until the next server has its copy, where copies are made
    a copy, its receipt      travel between the `copier` processes of neighbours
    it is to be restored     `ServerRestore` says what it does

`paceline.core.fault_tolerance.replication` decides what is copied and what may leave; `paceline.core.parties` decides
what an order to restore means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from paceline.core.effects import Reply, Tell
from paceline.core.fault_tolerance.replication import Copies, Kept, SliceState, mark_of
from paceline.core.fault_tolerance.server_replacement import why_not_replaced
from paceline.core.fault_tolerance.snapshots import WantedCapture
from paceline.core.message import size
from paceline.core.parties.server_restore import ServerRestore
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme
from paceline.sim.faults.servers.snapshots import state_of
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver
    from paceline.sim.faults.links.lossy_links import LossyLinks


class CopyingServers(Protocol):
    """Shows all servers to one of them. `copied`: each copies its updates to the next one."""

    sim: FaultedDriver
    streams: LossyLinks
    copied: bool

    @property
    def servers(self) -> Sequence[RecoverableServer]: ...
    def after_replicated(self, party: SimulatedProcess, act: Callable[[], object]) -> None: ...
    def hears_copy(self, server: RecoverableServer, src: RecoverableServer, message: Any) -> None: ...
    def released(self, server: RecoverableServer, effects: Iterable[Tell | Reply]) -> None: ...
    def answers(self, server: RecoverableServer, effect: Tell | Reply) -> None: ...


def can_be_replaced(scheme: Scheme, servers: int) -> bool:
    """Returns True if servers and workers of this scheme can go back to an earlier state."""
    return not why_not_replaced(scheme, servers)


class RecoverableServer:
    """Holds one incarnation of a server: its role, its carrier of means, and what copies to and from its neighbours.

    wanted   which state of it is to be sent for a snapshot
    held     the replies that wait for a copy, by identity; void: those of them to workers that have gone since
    restoring what it does with orders to restore
    copier   the process by which copies travel; None of its messages reaches a scheme's role
    """

    def __init__(self, whole: CopyingServers, party: SimulatedProcess, means: SimulatedProcess) -> None:
        self.whole, self.party, self.means = whole, party, means
        self.shard, self.lost = party.me, False
        self.wanted = WantedCapture(1)
        self.lost_incarnations: dict[int, int] = {}  # by shard: of others, the last one that it knows to be over
        self.held: dict[int, Reply] = {}
        self.void: dict[int, Reply] = {}
        self.restoring = ServerRestore(later=party.incarnation > 0)
        self.copies = self._copies() if whole.copied else None
        self.copier = SimulatedProcess(
            party.name, self.copies or Role(None, _nobody(party.me)), party.nic, party.skew_s
        )
        self.copier.incarnation, self.copier.process = party.incarnation, party.process
        self.after = self.before = self  # the incarnations of its neighbours that it knows

    @property
    def parties(self) -> tuple[SimulatedProcess, ...]:
        """Returns the three processes that live and die together: role, carrier of means, copier."""
        return self.party, self.means, self.copier

    @property
    def version(self) -> int:
        """Returns how many updates its role has applied; 0 for a role without a version."""
        return int(getattr(self.party.role, "version", 0))

    @property
    def kept(self) -> SliceState | None:
        """Returns the copy that it keeps of the server before it; None while that is not complete."""
        if self.copies is None or not self.copies.complete:
            return None
        try:
            return self.copies.held[0]
        except KeyError:
            assert self.whole.sim.invariants is not None
            raise self.whole.sim.invariants.broken(f"{self.party.name} has no copy that it calls complete") from None

    def _copies(self) -> Copies:
        """Returns the state machine of a live server's copies, with this server as its only slice."""
        count = len(self.whole.servers) or len(self.whole.sim.world.servers)
        return Copies(
            _nobody(self.shard),
            before=(self.shard - 1) % count,
            after=(self.shard + 1) % count,
            counts=(1, 1, 1),
            state_of=lambda at: state_of(self),
            mark_of=lambda at: mark_of(self.party.role),
            tell=self._tell,
            release=lambda role, effects: self.whole.released(self, effects),
        )

    def _tell(self, to: int, slice: int, message: Any) -> None:
        """Sends a message of the copies: an acknowledgement goes to the server before this one, a copy to the one
        after."""
        other = self.before if isinstance(message, Kept) else self.after
        self.whole.streams.send(self.copier, other.copier, size(message), self.whole.hears_copy, (other, self, message))

    def hold(self, effects: Iterable[Tell | Reply]) -> list[Tell | Reply]:
        """Returns the effects that may leave at once; the others wait until the next server has their copy."""
        effects = list(effects)
        now = self.copies.hold(0, self.party.role, effects) if self.copies else effects
        for effect in now:
            self.whole.answers(self, effect)
        if not now:
            self.held.update({id(reply): reply for reply in effects if type(reply) is Reply})
        return now


def _nobody(shard: int) -> RoleContext:
    """Returns a context without model and workers, for roles that exist only to have copies."""
    return RoleContext(me=shard, workers=(), w=None, update=lambda w, g, samples: w)
