"""Turns the faults, joins, leaves and preemptions of a cluster into events of a simulation.

`Simulation` calls `schedule` once, as the last step of its construction. Faults act through the public calls of
`Simulation`, through network cards, and through `LossyLinks` where a cluster has hazards; no role is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING

from paceline.core.coordination.party import Party, worker
from paceline.sim.cluster.model import Device, DevicePlacement, Fault, Spot
from paceline.sim.cluster.step_times import Speed
from paceline.sim.kernel.event_queue import Event

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver
    from paceline.sim.faults.links.lossy_links import LossyLinks


def schedule(sim: FaultedDriver) -> None:
    """Puts everything on the heap of `sim` that its cluster says will happen, at its virtual time in seconds."""
    placements = sim.cluster.worker_placements()
    for rank, placement in enumerate(placements):
        host = placement.host
        if host.joins_at_s > 0:
            sim.members.absent_at_first(rank)
            sim.heap.push(host.joins_at_s, sim.join, rank)
        if host.leaves_at_s < math.inf:
            sim.heap.push(host.leaves_at_s, sim.leave, rank)
        if host.spot:
            _Preemption(sim, rank, host.spot).wait_for_the_next(host.joins_at_s)
    if any(fault.kind == "partition" for fault in sim.cluster.faults):
        # A partition blocks the lines between sites. Sites that no link joins get a line without cost, so that there is
        # something to block.
        sim.network.lines_between(sorted({host.site for host in sim.cluster.hosts}))
    for fault in sim.cluster.faults:
        sim.heap.push(fault.at_s, _Happening(sim, fault, placements).begin)


class _Preemption:
    """Draws when one spot worker is present and when it is away, from a generator of its own."""

    def __init__(self, sim: FaultedDriver, rank: int, spot: Spot) -> None:
        self._sim, self._rank, self._spot = sim, rank, spot
        self._rng = Random(f"{sim.seed}/spot/{rank}")
        self._times = iter(spot.times_s)

    def wait_for_the_next(self, now: float) -> None:
        """Schedules the next preemption after `now`: the next recorded time, or a drawn one. Without one it stays."""
        at = next((t for t in self._times if t > now), math.inf) if self._spot.times_s else self._drawn(now)
        if at < math.inf:
            self._sim.heap.push(at, self._take)

    def _drawn(self, now: float) -> float:
        return now + self._rng.expovariate(1 / self._spot.life_s)

    def _take(self) -> None:
        self._sim.crash(self._rank)
        self._sim.heap.push(self._sim.now + self._rng.expovariate(1 / self._spot.away_s), self._give_back)

    def _give_back(self) -> None:
        self._sim.join(self._rank)
        self.wait_for_the_next(self._sim.now)


class _Happening:
    """Carries out one fault: whom it hits, how it begins and how it ends.

    A fault with `for_s` ends by itself, so many seconds after its beginning.
    """

    def __init__(self, sim: FaultedDriver, fault: Fault, placements: list[DevicePlacement]) -> None:
        self._sim, self._fault = sim, fault
        self._rng = Random(f"{sim.seed}/fault/{fault.at_s}")
        self._ranks = [
            rank for rank, placement in enumerate(placements) if rank in fault.workers or fault.names(placement)
        ]
        servers = [s for s, placement in enumerate(sim.cluster.server_placements()) if fault.names(placement)]
        self._servers = [sim.world.servers[s] for s in servers]
        parties = [sim.world.workers[r] for r in self._ranks] + self._servers
        self._cards = list(dict.fromkeys(party.nic for party in parties))
        self._names = frozenset(party.name for party in parties)

    def begin(self) -> None:
        """Begins the fault. Every kind of `model.FAULTS` and `model.OF_HAZARDS` has its entry here."""
        acts: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "restart": lambda: self._each(self._again if self._sim.streams else self._sim.restart),
            "leave": lambda: self._each(self._sim.leave),
            "drain": lambda: self._each(self._sim.drain),
            "join": lambda: self._each(self._sim.join),
            "pause": self._pause,
            "clog": self._clog,
            "partition": self._partition,
            "slow-disk": self._slow_disk,
            "mute": lambda: self._cut_off(hears=False),
            "deaf": lambda: self._cut_off(hears=True),
            "reset": self._reset,
            "clock-step": self._step_clocks,
            "disk-full": self._fill_disks,
            "torn-write": self._tear,
            "lie": self._lie,
            "bad-results": self._spoil_results,
        }
        acts[self._fault.kind]()

    @property
    def _end(self) -> float:
        return self._sim.now + self._fault.for_s

    def _each(self, act: Callable[[int], None]) -> None:
        for rank in self._ranks:
            act(rank)

    def _crash(self) -> None:
        """Crashes the workers, and with hazards the servers. After `for_s` the workers join again as newcomers."""
        self._each(self._sim.crash)
        for server in self._servers if self._sim.streams else ():
            self._streams.crash(server, self._fault.for_s)
        if self._fault.for_s:
            self._sim.heap.push(self._end, self._each, self._sim.join)

    def _again(self, rank: int) -> None:
        """Ends the process of a worker that is training, and starts another one at once, as in a live run.

        It is a later incarnation, and the others are told so: what the former one had asked is void.
        """
        party = self._sim.world.workers[rank]
        if party.here and not self._sim.members.stopped(party):
            self._sim.crash(rank)
            self._sim.join(rank)

    def _pause(self) -> None:
        """Freezes the hosts for `for_s`: a step under way takes so much longer, and what arrives is taken in
        afterwards."""
        end, cards = self._end, set(self._cards)

        def later(event: Event) -> float:
            at, _, act, args = event
            if not args or getattr(args[0], "nic", None) not in cards:
                return at
            # A step has so much less time: its end is shifted. A message only waits, so it arrives at the end of the
            # pause at the earliest.
            working = act is self._sim.worked
            return at + self._fault.for_s if working else max(at, end)

        self._sim.heap.change(later)
        self._clog()
        self._silent()

    def _clog(self) -> None:
        """Blocks the hosts' network cards; processes go on, and their messages queue."""
        for nic in self._cards:
            nic.block(self._end)

    def _partition(self) -> None:
        """Blocks all lines between the fault's sites and the others. If that lasts too long, workers on the far side
        are lost."""
        self._sim.network.cut(frozenset(self._fault.sites), self._end)
        if self._fault.for_s > self._sim.cluster.suspect_after_s:
            # The workers that are cut off from the coordinator are suspected, on whichever side of the cut it is.
            within = self._sim.world.control.site in self._fault.sites
            cards = self._sim.world.cards
            self._ranks = [rank for rank, nic in enumerate(cards) if (nic.site in self._fault.sites) != within]
            self._crash()

    @property
    def _streams(self) -> LossyLinks:
        streams: LossyLinks | None = self._sim.streams
        assert streams is not None, "a cluster without hazards has no such fault"
        return streams

    def _silent(self) -> None:
        """Lets the coordinator hear nothing of these processes: after `suspect_after_s` it declares them lost."""
        self._sim.members.silent(self._names, self._fault.for_s)

    def _cut_off(self, *, hears: bool) -> None:
        """Lets nothing that the parties send arrive, or (`hears`) nothing reach them."""
        self._streams.cut(self._names, hears=hears, for_s=self._fault.for_s)
        self._silent()

    def _reset(self) -> None:
        """Breaks the connections of the hosts: what is on its way is lost, and their processes count as failed."""
        self._streams.reset(self._names)
        self._each(lambda rank: self._sim.members.connection_lost(worker(rank)))
        for shard in self._servers:
            self._sim.members.connection_lost(Party("server", shard.me))

    def _step_clocks(self) -> None:
        """Sets the clocks of the hosts ahead by `extra_s`: schemes must not depend on clocks that agree."""
        for party in (*self._sim.world.workers, *self._sim.world.others):
            if party.name in self._names:
                party.skew_s += self._fault.extra_s

    def _fill_disks(self) -> None:
        """Lets the servers take no message for `for_s`, because they cannot save it."""
        for server in self._servers:
            self._streams.fill_disk(server, self._fault.for_s)

    def _tear(self) -> None:
        """Crashes servers in the middle of a message, which by chance was saved or was not."""
        for server in self._servers:
            self._streams.crash_with_next(server, self._fault.for_s, after=bool(self._rng.getrandbits(1)))

    def _lie(self) -> None:
        """Makes the workers lie from now on, for `for_s` seconds or to the end."""
        assert self._sim.lies is not None
        until = self._end if self._fault.for_s else math.inf
        for rank in self._ranks:
            self._sim.lies.begin(rank, until, self._fault.one_in)

    def _spoil_results(self) -> None:
        """Makes results of the workers NaN from now on, for `for_s` seconds or to the end."""
        assert self._sim.bad_results is not None
        until = self._end if self._fault.for_s else math.inf
        for rank in self._ranks:
            self._sim.bad_results.begin(rank, until, self._fault.one_in)

    def _slow_disk(self) -> None:
        """Makes every step take `extra_s` longer. Faults that overlap add up, and each takes back its own part."""
        for speed in self._speeds():
            speed.extra_s += self._fault.extra_s
        self._sim.heap.push(self._end, self._disk_recovers)

    def _disk_recovers(self) -> None:
        for speed in self._speeds():
            speed.extra_s -= self._fault.extra_s

    def _speeds(self) -> Iterator[Speed]:
        """Yields the speed model of each worker that is hit; a worker without one gets the model of the reference
        device."""
        for rank in self._ranks:
            party = self._sim.world.workers[rank]
            party.speed = party.speed or Speed(Device(), 1.0, "")
            yield party.speed
