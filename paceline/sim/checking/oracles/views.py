"""Checks the changes of who takes part: no two have the same number, and workers are drained as they should be.

The coordinator tells a party of each change in order, and only a join says its view. So from one join that a party
hears of to the next the view must have grown by one for that join, and by one for each worker that was lost or left in
between. That the process of one that had left has ended is no change, also to a newcomer that the roster told of the
leave. A party acknowledges all changes up to a view: were two of them one, it would acknowledge one that it has not
heard of.

A worker that is drained ends while the others go on, and does not come back. What it sent, what it holds and what is on
its way to it is checked by the oracles of deliveries, samples, contributions and mass, like that of all who leave.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party
from paceline.sim.kernel.processes import SimulatedProcess


class Views:
    """Counts what each process is told. `broken` makes the error of a violation."""

    def __init__(self, broken: Callable[[str], AssertionError]) -> None:
        self._broken = broken
        self._views: dict[tuple[str, int], int] = {}  # by process: of the last join that it heard of
        self._gone: Counter[tuple[str, int]] = Counter()  # losses and leaves since then
        self._left: dict[tuple[str, int], set[int]] = defaultdict(set)  # who has left, and has not come again

    def told(self, party: SimulatedProcess, message: Any) -> None:
        """Notes what the coordinator tells `party`. Raises if a join has a view that an earlier change has."""
        process = party.process
        if isinstance(message, control.Roster):
            self._left[process].update(message.gone)
        if isinstance(message, control.WorkerLeft):
            self._gone[process] += message.rank not in self._left[process]
            if not message.lost:
                self._left[process].add(message.rank)
        if not isinstance(message, control.WorkerJoined):
            return
        self._left[process].discard(message.rank)
        before, gone = self._views.get(process), self._gone.pop(process, 0)
        if before is not None and message.view < before + gone + 1:
            raise self._broken(
                f"{party.name} hears that worker {message.rank} joins in view {message.view}; {gone} are gone "
                f"since another joined in view {before}"
            )
        self._views[process] = message.view


class Drains:
    """Notes who is drained. `broken` makes the error of a violation. `ends`: the run needs a worker that trains."""

    def __init__(self, broken: Callable[[str], AssertionError], *, ends: bool) -> None:
        self._broken, self._ends = broken, ends
        self._began: set[tuple[str, int]] = set()  # processes
        self._exited: set[tuple[str, int]] = set()
        self._left: set[int] = set()  # ranks of which the others are told that they have left
        self._unaware: dict[int, set[tuple[str, int]]] = {}  # by such a rank: processes that have not heard it yet
        self._told_go: set[tuple[str, int]] = set()  # processes
        self._told: set[int] = set()  # and that the process has ended
        self._let_go: set[int] = set()

    def begins(self, party: SimulatedProcess) -> None:
        """Notes that a process leaves because it is drained."""
        self._began.add(party.process)

    def began(self, party: SimulatedProcess) -> bool:
        """Returns True if that process is drained."""
        return party.process in self._began

    def sent(self, to: Collection[Party], message: Any, others: Collection[SimulatedProcess]) -> None:
        """Notes what the coordinator sends while the run goes on. `others`: processes of servers, and of workers that
        train.

        Raises if a worker may exit that is missed by the others, or by the run.
        """
        match message:
            case control.WorkerLeft(rank=rank, lost=False):
                self._left.add(rank)
                self._unaware[rank] = {other.process for other in others if other.who in to}
            case control.WorkerLeft(rank=rank):
                self._told.add(rank)
            case control.Exit():
                for who in to:
                    self._lets_go(who, others)

    def heard(self, party: SimulatedProcess, message: Any) -> None:
        """Notes that a message of the coordinator has reached `party`."""
        match message:
            case control.WorkerLeft(rank=rank, lost=False):
                self._unaware.get(rank, set()).discard(party.process)
            case control.Go():
                self._told_go.add(party.process)

    def _lets_go(self, who: Party, others: Collection[SimulatedProcess]) -> None:
        workers = [other for other in others if other.kind == "worker"]
        if workers and who.index not in self._left:
            raise self._broken(f"{who} may exit, and the others are not told that it has left")
        unaware = self._unaware.get(who.index, set())
        if late := [other.name for other in others if other.process in unaware and self._serves(other)]:
            raise self._broken(f"{who} may exit, and {late[0]} has not heard yet that it has left")
        if who.index in self._told:
            raise self._broken(f"{who} may exit, and the others are told that its process has ended")
        if self._ends and not workers:
            raise self._broken(f"{who} may exit, and nobody else trains")
        self._let_go.add(who.index)

    def _serves(self, party: SimulatedProcess) -> bool:
        """Returns False for a server in the place of a lost one until Go, before which it hears of all who left."""
        return party.kind != "server" or not party.incarnation or party.process in self._told_go

    def exits(self, party: SimulatedProcess) -> None:
        """Notes that the process of `party` may exit while the run goes on. Raises if it was not drained, still takes
        part, or is told so twice."""
        if party.process not in self._began:
            raise self._broken(f"{party.name} may exit while the run goes on, and is not drained")
        if party.here:
            raise self._broken(f"{party.name} is drained, and still trains when it may exit")
        if party.process in self._exited:
            raise self._broken(f"{party.name} is drained, and may exit twice")
        self._exited.add(party.process)

    def ended(self, party: SimulatedProcess, others: Collection[Party]) -> None:
        """Notes that a drained process has ended. Raises if it was not to, or the `others` that train are not told."""
        if party.process not in self._exited:
            raise self._broken(f"{party.name} has ended, and may not exit yet")
        if others and party.me not in self._told:
            raise self._broken(f"{party.name} was drained, and the others are not told that its process has ended")

    def enters(self, rank: int) -> None:
        """Notes that worker `rank` trains again. Raises if it was drained."""
        if rank in self._let_go:
            raise self._broken(f"worker {rank} was drained, and trains again")
        self._told.discard(rank)
        self._left.discard(rank)
