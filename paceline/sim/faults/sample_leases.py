"""Connects leases of samples to a simulation in which processes die: what workers, servers and coordinator tell the
queue.

    a worker       takes leases while it counts as alive, and says after a rollback how far nothing is under way
    server 0       tells what became of each contribution, what it has after it went back, and what still waits of an
                   incarnation once it has heard that this one is over
    coordinator    asks for that again when servers are back, since whoever was asked may have been lost

The queue itself (`core/samples/sample_leases.py`) is that of a live run. What differs from a live run
(`paceline.core.coordination.sample_leases`): a lease is there at once, and what processes tell the queue arrives in
order however bad the links are; it is lost with its sender only.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from paceline.core.effects import Compute, Computed, Data, Piece, Train, Trained
from paceline.core.paramserver.gated_server import ClockedServer, settles
from paceline.core.samples.sample_leases import LATE, Leases, joined
from paceline.sim.checking.oracles.samples import Samples
from paceline.sim.kernel.processes import SimulatedProcess
from paceline.sim.kernel.workload import Workload

if TYPE_CHECKING:
    from paceline.sim.simulation import Simulation

DELAY_MAX_S = 0.3
"""The longest delay of what a process tells the queue: a live server reports what it has settled that often."""
OPEN_MAX = 64
"""The most pieces of work of one process that are remembered while their end is not known."""


class _Taken:
    """Holds the leases of one incarnation of a worker.

    handed   samples of the work it was given so far
    rest     what is left of its lease
    anew     it restarted from what the servers went back to, and has not said so
    open     data of work that may still be broken off
    """

    __slots__ = ("anew", "handed", "open", "rest")

    def __init__(self) -> None:
        self.handed = 0
        self.rest: Piece | None = None
        self.anew = False
        self.open: dict[int, Data] = {}


class SimulatedLeases:
    """Connects the workers and the first server to the queue `leases`; it is the `Workload` of leased samples."""

    def __init__(self, sim: Simulation, leases: Leases, work: Workload) -> None:
        self._sim, self.leases, self._work = sim, leases, work
        self.samples = Samples(sim.invariants.broken) if sim.invariants else None
        self._rng = Random(f"{sim.seed}/leases")
        self._taken: dict[tuple[str, int], _Taken] = defaultdict(_Taken)
        self._told: dict[tuple[str, int], deque[Callable[[], None]]] = defaultdict(deque)  # on its way, by sender
        self._over: set[tuple[str, int]] = set()  # processes that are heard no more
        self._to_be_fenced: set[tuple[int, int]] = set()  # rank and incarnation
        self.attach(sim.world.servers[0])

    @staticmethod
    def suits(sim: Simulation) -> bool:
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
        if mine.anew:
            mine.anew = False
            self._tell(party, partial(self.leases.past, rank, party.incarnation, mine.handed))
        pieces: list[Piece] = []
        while samples and (mine.rest or party.here):
            epoch, start, stop = mine.rest or self._take(party)
            cut = min(stop, start + samples)
            pieces.append((epoch, start, cut))
            mine.rest = (epoch, cut, stop) if cut < stop else None
            mine.handed += cut - start
            samples -= cut - start
        data = joined(pieces)
        # The end of some work is never heard of, so the oldest is forgotten. It is too old to be broken off.
        if len(mine.open) == OPEN_MAX:
            del mine.open[next(iter(mine.open))]
        mine.open[id(data)] = data
        return data

    def _take(self, party: SimulatedProcess) -> Piece:
        """Takes the next lease for the worker, and notes it for the oracle."""
        piece = self.leases.take(party.me, party.incarnation)
        if self.samples:
            self.samples.given(piece, party.me)
        return piece

    def unused(self, rank: int, data: Data) -> None:
        """Returns samples to the queue, since the worker was restarted while it worked at them."""
        if self._taken[self._sim.world.workers[rank].process].open.pop(id(data), None):
            self.leases.settled(rank, LATE, data)

    def on_rollback(self, party: SimulatedProcess) -> None:
        """Notes that the servers have gone back: the worker starts anew, and what it works at will not be handed
        over."""
        mine = self._taken[party.process]
        mine.anew = True
        mine.open.clear()

    # ---- the first server ----------------------------------------------------------------------------------
    def attach(self, party: SimulatedProcess) -> None:
        """Makes that incarnation of the first server report the fate of each contribution."""
        party.role.settled = lambda rank, fate, data: self._tell(  # type: ignore[attr-defined]
            party, partial(self._settle, party, rank, fate, data)
        )

    def _settle(self, party: SimulatedProcess, rank: int, fate: str, data: Data) -> None:
        """Tells the queue the fate of `data`. Samples that are not the worker's own are a strike; an honest worker has
        none."""
        try:
            self.leases.settled(rank, fate, data)
        except ValueError as error:  # a worker has named samples that are not its own
            if self._sim.message_checks is None:
                raise
            self._sim.message_checks.strike(party, self._sim.world.workers[rank], str(error))

    def goes_back(self, party: SimulatedProcess) -> None:
        """Attaches the restored first server, and tells the queue which samples its state contains."""
        self.attach(party)
        self._tell(party, partial(self._restored, tuple(party.role.done)))  # type: ignore[attr-defined]

    def _restored(self, done: Data) -> None:
        self.leases.restored(done)
        if self.samples:
            self.samples.restored()

    def is_back(self, party: SimulatedProcess) -> None:
        """Delivers at once what the server has told, since nobody may go on before the queue knows it."""
        told = self._told[party.process]
        while told:
            told.popleft()()

    def heard_gone(self, party: SimulatedProcess, rank: int) -> None:
        """A server has heard that an incarnation of the worker is over; the first one tells what still waits of it."""
        who = self._sim.world.workers[rank]
        if not who.here and (rank, who.incarnation) in self._to_be_fenced:
            self._tell_what_waits(party, rank, who.incarnation)

    def _tell_what_waits(self, party: SimulatedProcess, rank: int, incarnation: int) -> None:
        """Tells the queue which samples of an ended incarnation wait in the open round of the first server."""
        role = party.role
        if party is self._sim.world.servers[0] and isinstance(role, ClockedServer):
            self._tell(party, partial(self._fenced, rank, incarnation, role.pending(rank)))

    def _fenced(self, rank: int, incarnation: int, pending: Data) -> None:
        """Ends an incarnation's leases: only `pending` may still enter the model, and the rest is free again."""
        self._to_be_fenced.discard((rank, incarnation))
        self.leases.fenced(rank, incarnation, pending)

    # ---- the coordinator -----------------------------------------------------------------------------------
    def gone(self, party: SimulatedProcess) -> None:
        """Notes that an incarnation of a worker is over, shortly before the others are told."""
        self._over.add(party.process)
        if self.leases.leave(party.me, party.incarnation):
            self._to_be_fenced.add((party.me, party.incarnation))

    def server_lost(self, party: SimulatedProcess) -> None:
        """Ignores what the lost server has told and has not arrived."""
        self._over.add(party.process)

    def servers_are_back(self, missed: Callable[[SimulatedProcess], bool]) -> None:
        """Asks the first server again about every ended incarnation whose samples are not settled.

        `missed`: returns True for a worker that has crashed and that nobody misses yet.
        """
        workers = self._sim.world.workers
        # A crashed worker that nobody misses yet will be evicted, and is asked about then.
        living = {party.me: party.incarnation for party in workers if party.here or missed(party)}
        for rank, incarnation in list(self.leases.unsettled()):
            if living.get(rank) != incarnation:
                self._to_be_fenced.add((rank, incarnation))
                self._sim.heap.push(
                    self._sim.now + self._delay(), self._asked, self._sim.world.servers[0], rank, incarnation
                )

    def _asked(self, party: SimulatedProcess, rank: int, incarnation: int) -> None:
        """The first server answers once it takes nothing more of that incarnation."""
        if party.process in self._over or not isinstance(party.role, ClockedServer):
            return
        who = self._sim.world.workers[rank]
        assert self._sim.streams is not None
        fenced = self._sim.streams.receiver(party).refuses(who.name, incarnation)
        if fenced or rank not in party.role.clocks or who.incarnation > incarnation:
            self._tell_what_waits(party, rank, incarnation)
        else:
            self._sim.heap.push(self._sim.now + DELAY_MAX_S, self._asked, party, rank, incarnation)

    # ---- the ways ------------------------------------------------------------------------------------------
    def _delay(self) -> float:
        """Returns a drawn delay in seconds, of at most DELAY_MAX_S."""
        return self._rng.random() * DELAY_MAX_S

    def _tell(self, party: SimulatedProcess, what: Callable[[], None]) -> None:
        """Sends a report to the queue. Reports of one process arrive in order, each after a delay of its own."""
        self._told[party.process].append(what)
        self._sim.heap.push(self._sim.now + self._delay(), self._arrives, party)

    def _arrives(self, party: SimulatedProcess) -> None:
        """Delivers the oldest report of that process, unless it was lost: so order holds though delays differ."""
        told = self._told[party.process]
        if told and party.process not in self._over:
            told.popleft()()

    def all_is_accounted_for(self) -> None:
        """Checks the samples when everybody has left. Runs with a liar are not checked, for its claims cannot be."""
        assert self._sim.invariants is not None
        role = self._sim.world.servers[0].role
        if self._sim.liars:  # what a worker says of its samples nobody can check; others' are out of its reach
            return
        if self.samples and isinstance(role, ClockedServer):
            self.samples.all_is_accounted_for(self.leases, self._sim.invariants.shard(0), tuple(role.done))
