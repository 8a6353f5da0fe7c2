"""Checks that gossip conserves mass, by the shares that each worker was seen to send and receive.

Under push-sum the weights of all workers add up to a constant; lost mass would bias the mean that they converge to.
Each worker holds what it began with, less what it sent, plus what it received:

    worker 0 holds 1.0, worker 1 holds 1.0          books {0: 1.0, 1: 1.0}
    0 sends a share of weight 0.5 to 1              books {0: 0.5, 1: 1.0}, 0.5 is under way
    1 hears it                                      books {0: 0.5, 1: 1.5}; `Role.model` of 1 must say 1.5

The check relies only on `Role.model`, which returns a worker's mass, and on the `weight` of a share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.driver_protocol import SimulationDriver

TOLERANCE = 1e-9
BEGUN_WITH = 1.0
"""The mass of a worker that begins anew where nobody has any."""

Process = tuple[str, int]


def weight_of(message: Any) -> float:
    """Returns the mass that travels with `message`; 0.0 for a message that is no share."""
    return float(message.weight) if hasattr(message, "weight") and hasattr(message, "round") else 0.0


def held_by(party: SimulatedProcess) -> float:
    """Returns the mass that a worker's role says it holds."""
    return float(party.role.model()[1])


class Mass:
    """Keeps an account of the mass of each worker of `sim`. `broken` makes the error of a violation.

    _books: by process, what it holds by its shares. _left: who has left cleanly, where others have been there ever
    since. _lost: who was lost, with its mass and what was on its way to it and from it. _under_way: shares that nobody
    has heard yet.
    """

    def __init__(self, sim: SimulationDriver, broken: Callable[[str], AssertionError]) -> None:
        self._sim, self._broken = sim, broken
        self._books: dict[Process, float] = {}
        self._parties: dict[Process, SimulatedProcess] = {}
        self._left: set[Process] = set()
        self._lost: set[Process] = set()
        self._under_way: dict[Process, list[tuple[Process, Any]]] = defaultdict(list)  # by receiver

    def watch(self, party: SimulatedProcess) -> None:
        """Checks the mass a worker begins with: a newcomer has none, unless no other worker is present.

        Those that came before and have none may have made some until now, when this one was not there, and may have
        sent it on.
        """
        for process, books in self._books.items():
            former = self._parties[process]
            if former.incarnation and books <= 0 and process not in self._lost and former.me not in self._sim.liars:
                self._look_at(former, but=party)
        self._parties[party.process] = party
        held = self._books[party.process] = held_by(party)
        if held and party.incarnation and any(other.here for other in self._sim.world.workers if other is not party):
            raise self._broken(f"{party.name} comes with {held:.9g} that nobody gave it")

    def said(self, party: SimulatedProcess, to: SimulatedProcess, message: Any) -> None:
        """Takes the weight of a share off its sender's books; the share is under way from here on."""
        if weight := weight_of(message):
            self._books[party.process] -= weight
            self._under_way[to.process].append((party.process, message))

    def heard(self, party: SimulatedProcess, src: int, message: Any) -> None:
        """Adds the weight of a share to its receiver's books."""
        if weight := weight_of(message):
            self._books[party.process] += weight
            coming, name = self._under_way[party.process], self._sim.world.workers[src].name
            # A codec makes another message of a share, so it cannot always be found by identity. Then any share of the
            # same sender is taken off the list.
            its_own = [at for at, (_, share) in enumerate(coming) if share is message]
            like_it = [at for at, (sender, _) in enumerate(coming) if sender[0] == name]  # it was encoded on its way
            for at in (its_own or like_it)[:1]:
                del coming[at]

    # ---- who comes and goes ----------------------------------------------------------------------------------
    def left(self, party: SimulatedProcess) -> None:
        """Notes that a worker left cleanly: it must hold nothing any more, unless nobody was present who could
        take it, or whoever was has gone too before it had it. No live run goes on without a worker."""
        if any(other.here for other in self._sim.world.workers if other is not party):
            self._left.add(party.process)
        else:
            self._left.clear()

    def lost(self, party: SimulatedProcess) -> None:
        """Notes that a worker is dead or counts as such; its mass and its shares on the way may vanish."""
        if party.me not in self._sim.liars:
            self._look_at(party)
        self._lost.add(party.process)

    # ---- the whole -------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Checks every worker that is neither lost nor a liar."""
        for process, party in self._parties.items():
            if process not in self._lost and party.me not in self._sim.liars:
                self._look_at(party)

    def _look_at(self, party: SimulatedProcess, but: SimulatedProcess | None = None) -> None:
        """Raises if a worker holds other mass than its books say, or has left with mass. `but`: who begins just now."""
        process = party.process
        held, books = held_by(party), self._books[process]
        if self._begins_anew(party, held - books, but):
            self._books[process] = books = books + BEGUN_WITH
        wrong = held - books if self._sim.liars else abs(held - books)  # who was given too much does not take it all
        if wrong > TOLERANCE * max(1.0, books):
            raise self._broken(f"{party.name} holds {held:.9g}; by the shares it sent and got it has {books:.9g}")
        if process in self._left and held > TOLERANCE and any(other.here for other in self._sim.world.workers):
            raise self._broken(f"{party.name} has left with {held:.9g} that it was to hand over")

    def _begins_anew(self, party: SimulatedProcess, more: float, but: SimulatedProcess | None) -> bool:
        """Returns True if this newcomer may have made its mass itself, since nobody present has any.

        Or a liar has sent it a share that came without a weight, as from one that has nothing.
        """
        if abs(more - BEGUN_WITH) > TOLERANCE or not party.incarnation:
            return False
        if any(self._parties[src].me in self._sim.liars for src, _ in self._under_way[party.process]):
            return True
        here = {party.process, *(other.process for other in self._sim.world.workers if other.here and other is not but)}
        there = sum(books for process, books in self._books.items() if process in here)
        # What a lost worker has sent may never come.
        coming = sum(weight_of(of) for to in here for src, of in self._under_way[to] if src not in self._lost)
        return there + coming <= TOLERANCE

    def all_is_accounted_for(self) -> None:
        """Checks, when nothing happens any more, that every share has arrived, or its sender or receiver was lost.

        A receiver that is unknown was lost before it had a role.
        """
        self.look()
        for dst, coming in self._under_way.items():
            if dst not in self._parties:
                continue
            for src, share in coming:
                among_liars = {self._parties[src].me, self._parties[dst].me} & self._sim.liars
                if src not in self._lost and dst not in self._lost and not among_liars:
                    raise self._broken(f"a share of {weight_of(share):.9g} from {src[0]} to {dst[0]} never came")
