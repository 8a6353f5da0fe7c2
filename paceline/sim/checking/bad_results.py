"""Checks what becomes of results that are NaN, where some workers have such (`sim/faults/bad_results.py`).

    a server        holds no NaN, neither in its weights nor in what its role keeps beside them
    a worker        holds none, if its own results are finite
    a strike        is only given to a worker that had a bad result, and so nobody else is to be expelled
    the run         has diverged only if the last contributions that a server heard were all bad, or a mean has no other
                    part
    leased samples  are left out only if two bad results were made of them

A `NotFinite` says which result it comes from. So the oracle knows whether a contribution that was rejected twice is the
same one, pushed again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from paceline.core.collective.mean_server import Part
from paceline.core.effects import Reply, Tell
from paceline.core.message import vector_fields
from paceline.core.paramserver.gradient_check import REFUSED_IN_A_ROW
from paceline.core.role import Role
from paceline.core.trace import Gated
from paceline.sim.checking.oracles.contributions import Place, places
from paceline.sim.kernel.processes import On, SimulatedProcess
from paceline.sim.kernel.vectors import NotFinite

if TYPE_CHECKING:
    from paceline.sim.driver_protocol import SimulationDriver


class BadResultsRecount:
    """Follows bad results through `sim`. `broken` makes the error of a violation.

    strikes: rejected contributions, by server and worker.
    """

    def __init__(self, sim: SimulationDriver, broken: Callable[[str], AssertionError]) -> None:
        self._sim, self._broken = sim, broken
        self.strikes: Counter[tuple[int, int]] = Counter()
        self._in_a_row: Counter[tuple[str, int]] = Counter()  # by process of a server
        # By process of a server, tag and rank: which parts of a mean that is not answered yet are bad.
        self._parts: defaultdict[tuple[tuple[str, int], Any], dict[int, bool]] = defaultdict(dict)
        self._heard: dict[tuple[int, int], Any] = {}  # by server and worker: its last contribution
        self._bad: defaultdict[Place, set[int]] = defaultdict(set)  # of which samples they were made

    def listening(self, party: SimulatedProcess) -> On:
        """Returns an `on` for `party` that takes in each message, and looks afterwards at what the role keeps."""
        on, is_server = party.on, party.kind in ("server", "all-reduce")

        def listening(now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            if is_server:
                self._hears(party, src, message)
            yield from on(now, src, message)
            self._look_at(party)

        return listening

    def _hears(self, party: SimulatedProcess, src: int, message: Any) -> None:
        """Notes a contribution, or a part of a mean."""
        if isinstance(message, Part) and message.weight:
            mean = (party.process, message.tag)
            # By that name there may have been another mean, before a worker began anew.
            if src in self._parts[mean] or message.tag not in getattr(party.role, "meetings", {message.tag}):
                self._parts[mean].clear()
            self._parts[mean][src] = _bad_vector(message) is not None
        if getattr(message, "clock", None) is None or not vector_fields(type(message)):
            return
        self._heard[party.me, src] = message
        if _bad_vector(message) is None:
            self._in_a_row[party.process] = 0
        else:
            self._in_a_row[party.process] += 1

    def _look_at(self, party: SimulatedProcess) -> None:
        """Raises if the role of `party` keeps a NaN. A worker whose own results are bad may."""
        if party.kind == "worker" and party.me in self._sim.bad_results.ever:
            return
        for name, value in vars(party.role).items():
            if _holds(value):
                raise self._broken(f"{party.name} keeps a NaN in {name}")

    def look(self) -> None:
        """Looks at all parties."""
        for party in (*self._sim.world.others, *self._sim.world.workers):
            self._look_at(party)

    def gated(self, record: Gated) -> None:
        """Takes a strike of the gradient check."""
        shard, rank = record.shard, record.rank
        if not record.refused:
            return
        if rank not in self._sim.bad_results.ever:
            raise self._broken(f"server {shard} rejects a contribution of worker {rank}, which never had a bad result")
        self.strikes[shard, rank] += 1
        message = self._heard.get((shard, rank))
        if not shard and (vector := _bad_vector(message)) is not None:
            for place in places(getattr(message, "data", ())):
                self._bad[place].add(vector.number)

    def expels(self, rank: int) -> None:
        """Notes that a server wants worker `rank` to be expelled."""
        if rank not in self._sim.bad_results.ever:
            raise self._broken(f"worker {rank} is to be expelled, which never had a bad result")

    def diverged(self, why: str) -> None:
        """Raises if the run has ended as diverged though servers still heard contributions that are finite."""
        no_mean = not any(all(bad.values()) for bad in self._parts.values())
        if no_mean and max(self._in_a_row.values(), default=0) < REFUSED_IN_A_ROW:
            raise self._broken(f"the run ends, and contributions were finite: {why}")

    def may_be_left_out(self, place: Place) -> bool:
        """Returns True if two bad results were made of that sample."""
        return len(self._bad[place]) > 1


def _bad_vector(message: Any) -> NotFinite | None:
    """Returns the vector of a message that has NaN; None if none has."""
    vectors = (getattr(message, name) for name in vector_fields(type(message))) if message is not None else ()
    return next((v for v in vectors if isinstance(v, NotFinite)), None)


def _holds(value: Any, depth: int = 3) -> bool:
    """Returns True if `value` is a NaN, or a table, a round or a message that has one in it."""
    if isinstance(value, NotFinite):
        return True
    if not depth or isinstance(value, str | int | float):
        return False
    if isinstance(value, dict | Role):
        inside = value if isinstance(value, dict) else vars(value)
        return any(_holds(one, depth - 1) for one in inside.values())
    if isinstance(value, list | tuple | set):
        return any(_holds(one, depth - 1) for one in value)
    return isinstance(getattr(value, "sum", None), NotFinite)
