"""Leases of samples in a simulation in which processes die: what workers and the first server tell the coordinator.

    a worker       takes leases while it counts as alive (Want); says after a rollback what is not under way (Past)
    server 0       tells what became of each contribution (SamplesResolved), what it has after it went back (Restored),
                   and, asked by Fence, what still waits of an incarnation that is over (Fenced)

The coordinator's part is that of a live run (`paceline.core.coordination.sample_leases`). What differs from a live run:
a lease is there at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, cast

from paceline.core.coordination import control_messages as control
from paceline.core.effects import Compute, Computed, Data, Piece, Train, Trained
from paceline.core.paramserver.gated_server import ClockedServer, settles
from paceline.core.parties.lease_reports import HandedSamples, ResolvedContributions
from paceline.core.parties.orders import ReportNotUnderWay, ReportPending
from paceline.core.samples.lease_in_use import LeaseInUse
from paceline.core.samples.sample_leases import LATE, Leases, joined
from paceline.sim.checking.oracles.samples import Samples
from paceline.sim.kernel.processes import SimulatedProcess
from paceline.sim.kernel.workload import Workload

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers

SETTLED_MAX_S = 0.3
"""The longest time that a server keeps to itself what it has settled, as a live one does."""
OPEN_MAX = 64
"""The most pieces of work of one process that are remembered while their end is not known."""


class _Taken:
    """Holds the leases of one incarnation of a worker.

    handed   samples of the work it was given so far
    lease    the one it is at
    anew     it restarted from what the servers went back to, and has not said so
    open     data of work that may still be broken off
    reports  what it tells the coordinator of them
    """

    __slots__ = ("anew", "handed", "lease", "open", "reports")

    def __init__(self) -> None:
        self.handed = 0
        self.lease = LeaseInUse()
        self.anew = False
        self.open: dict[int, Data] = {}
        self.reports = HandedSamples()


class SimulatedLeases:
    """Connects the workers and the first server to the coordinator's leases; it is the `Workload` of leased samples.

    sizes: a queue of so many samples an epoch, in leases of that size.
    """

    def __init__(self, sim: FaultedDriver, sizes: Leases, work: Workload) -> None:
        self._sim, self._sizes, self._work = sim, sizes, work
        self.samples = Samples(sim.invariants.broken) if sim.invariants else None
        self._rng = Random(f"{sim.seed}/leases")
        self._taken: dict[tuple[str, int], _Taken] = defaultdict(_Taken)
        self._resolved: dict[tuple[str, int], ResolvedContributions] = defaultdict(ResolvedContributions)
        self.attach(sim.world.servers[0])

    @staticmethod
    def suits(sim: FaultedDriver) -> bool:
        """Returns True if leases are simulated here: with hazards, and a first server that settles contributions."""
        return sim.cluster.hazards is not None and settles(sim.scheme, sim.cluster.servers)

    # ---- the work of workers -------------------------------------------------------------------------------
    def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
        """Computes as the wrapped workload does; the result says which leased samples it was made of."""
        done = self._work.compute(rank, wanted, rng)
        return Computed(done.g, done.samples, done.seconds, self._some(rank, done.samples))

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        """Trains as the wrapped workload does; the result says which leased samples it was made of."""
        done = self._work.train(rank, wanted, rng)
        return Trained(done.x, done.samples, done.seconds, done.memory, self._some(rank, done.samples))

    def _some(self, rank: int, samples: int) -> Data:
        """Returns the next `samples` samples of the worker's leases; a worker that counts as dead gets no further
        lease.

        What a zombie still has of its lease it may use: its results are rejected anyway.
        """
        party = self._sim.world.workers[rank]
        mine = self._taken[party.process]
        past, mine.anew = mine.reports.asks_for_work(mine.handed, anew=mine.anew), False
        if past:
            self._tell(party, past)
        pieces: list[Piece] = []
        while samples and (mine.lease.rest or party.here):
            piece = mine.lease.take(samples, lambda: self._take(party))
            assert piece is not None
            pieces.append(piece)
            mine.handed += piece[2] - piece[1]
            samples -= piece[2] - piece[1]
        data = joined(pieces)
        # The end of some work is never heard of, so the oldest is forgotten. It is too old to be broken off.
        if len(mine.open) == OPEN_MAX:
            del mine.open[next(iter(mine.open))]
        mine.open[id(data)] = data
        return data

    def _take(self, party: SimulatedProcess) -> Piece:
        """Takes the next lease for the worker, and notes it for the oracle."""
        want = control.Want(samples=self._sizes.samples, size=self._sizes.size)
        piece = self._members.leases_to(party, want)
        if self.samples:
            self.samples.given(piece)
        return piece

    def unused(self, rank: int, data: Data) -> None:
        """Returns samples to the queue, since the worker was restarted while it worked at them."""
        if self._taken[self._sim.world.workers[rank].process].open.pop(id(data), None):
            leases = self._members.machine.leasing.leases
            assert leases is not None
            leases.settled(rank, LATE, data)

    def on_rollback(self, party: SimulatedProcess) -> None:
        """Notes that the servers have gone back: the worker starts anew, and what it works at will not be handed
        over."""
        mine = self._taken[party.process]
        mine.anew = True
        mine.open.clear()

    # ---- the first server ----------------------------------------------------------------------------------
    def attach(self, party: SimulatedProcess) -> None:
        """Makes that incarnation of the first server report the fate of each contribution."""

        def settled(rank: int, fate: str, data: Data) -> None:
            if self._resolved[party.process].add(rank, fate, data):
                self._sim.heap.push(self._sim.now + self._rng.random() * SETTLED_MAX_S, self._tells_settled, party)

        party.role.settled = settled  # type: ignore[attr-defined]

    def _tells_settled(self, party: SimulatedProcess) -> None:
        """Tells the coordinator what the server has resolved since it last did, if it still runs."""
        if not party.hears:
            if self._members.counts(party) and not self._members.over:  # it may come back as it was
                self._sim.heap.push(self._sim.now + SETTLED_MAX_S, self._tells_settled, party)
            return
        self._tells_when_copied(party)

    def _tells_when_copied(self, party: SimulatedProcess, *behind: control.Fenced) -> None:
        """Tells the coordinator what the server has resolved by now, and what comes `behind`, once its copy knows."""
        resolved = self._resolved[party.process]
        last = resolved.queue(*behind)
        self._members.after_replicated(party, lambda: self._tells(party, resolved.messages(last)))

    def _tells(self, party: SimulatedProcess, messages: Iterable[object]) -> None:
        for message in messages:
            self._tell(party, message)

    def forgets_resolved(self, party: SimulatedProcess) -> None:
        """Drops what the server has not told yet, since it is to be restored."""
        self._resolved[party.process].forget()

    def reports(self, party: SimulatedProcess, action: ReportPending | ReportNotUnderWay) -> None:
        """Tells the coordinator what `party`, a worker or the first server, knows of leased samples."""
        match action:
            case ReportPending(rank=rank, incarnation=incarnation):
                role = party.role
                pending = role.pending(rank) if isinstance(role, ClockedServer) else ()
                fenced = control.Fenced(rank=rank, incarnation=incarnation, pending=pending)
                self._tells_when_copied(party, fenced)
            case ReportNotUnderWay():
                self._tell(party, self._taken[party.process].reports.past())

    def heard(self, message: object) -> None:
        """Notes that the coordinator has heard of samples that are done, or what the first server went back to."""
        if not self.samples:
            return
        leases, invariants = self._members.machine.leasing.leases, self._sim.invariants
        if leases and invariants and isinstance(message, control.SamplesResolved) and not self._sim.liars:
            self.samples.counted(leases, invariants.shard(0))

    # ---- the coordinator -----------------------------------------------------------------------------------
    @property
    def _members(self) -> LossyFaultedMembers:
        return cast("LossyFaultedMembers", self._sim.members)  # `suits` says so

    def _tell(self, party: SimulatedProcess, message: object) -> None:
        self._members.tell(party, message)

    def all_is_accounted_for(self) -> None:
        """Checks the samples when everybody has left. Runs with a liar are not checked, for its claims cannot be."""
        assert self._sim.invariants is not None
        role = self._sim.world.servers[0].role
        if self._sim.liars:  # what a worker says of its samples nobody can check; others' are out of its reach
            return
        if self.samples and isinstance(role, ClockedServer):
            leases = self._members.machine.leasing.leases or self._sizes
            bad = self._sim.invariants.bad_results
            may_be_left_out = bad.may_be_left_out if bad else lambda place: False
            self.samples.all_is_accounted_for(leases, self._sim.invariants.shard(0), tuple(role.done), may_be_left_out)
