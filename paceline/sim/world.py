"""Makes the parties of a simulation: each process with its role, network card and clock.

`Simulation` builds one `World` and asks it for replacements: a newcomer in a worker's place, a successor in a
server's place. Everything that a role is lent (`RoleContext`) is put together here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from paceline.core.collective.mean_server import MeanServer, mean_model
from paceline.core.coordination.control_messages import Plan
from paceline.core.effects import Data
from paceline.core.errors import ConfigError
from paceline.core.paramserver.gradient_check import SliceGradientCheck
from paceline.core.paramserver.peer_check import OwnPartCheck, OwnResults, PeerCheck
from paceline.core.paramserver.round import Round
from paceline.core.parties.takeover import taken_over
from paceline.core.role import Role, RoleContext, Update
from paceline.core.scheme import Scheme
from paceline.core.trace import Record
from paceline.core.vector import Ghost
from paceline.sim.cluster.model import Cluster, DevicePlacement
from paceline.sim.cluster.network import Network, Nic
from paceline.sim.cluster.step_times import speed_of
from paceline.sim.kernel.processes import SimulatedProcess
from paceline.sim.kernel.vectors import memory_for
from paceline.sim.kernel.workload import ModelShard, equal_shards


class World:
    """Holds every party of `scheme` on `cluster`.

    workers, servers  by rank and by shard
    means             the servers' other role, which carries `Mean`; on the same card and clock
    peers             carries `Mean` among the workers, if asked for (`by_peers`) or without servers; else None
    control           the card of the coordinator, whether or not the scheme has a role for it
    gate, rounds      make the gradient check and the rounds of a shard; with checks workers check one another, too
    settled           hears from shard 0 what became of leased samples
    shards            by server; equal ones by default
    plan              of the coordinator: it bounds contributions and batches
    refuses           counts a false claim that a role has found: its process's name, the rank, and what is wrong

    Raises ConfigError when the scheme cannot run on such a cluster, or there are more servers than parameters.
    """

    def __init__(
        self,
        scheme: Scheme,
        w0: Any,
        cluster: Cluster,
        update_factory: Callable[[int], Update],
        seed: int,
        seconds_per_step: tuple[float, ...],
        note: Callable[[Record], None] | None,
        *,
        by_peers: bool = False,
        gate: Callable[[int], SliceGradientCheck | None] = lambda shard: None,
        rounds: Callable[[Iterable[int]], Round] | None = None,
        settled: Callable[[int, str, Data], None] | None = None,
        own_result: Callable[[int, int, bool, bool], None] | None = None,
        shards: Sequence[ModelShard] = (),
        plan: Plan,
        refuses: Callable[[str, int, str], None] | None = None,
    ) -> None:
        scheme.check(cluster.workers, cluster.servers)
        if cluster.servers > len(w0):
            n = len(w0)
            raise ConfigError(f"{cluster.servers} servers cannot share {n} parameters: give --servers {n} or less")
        self.scheme, self.cluster, self.seed = scheme, cluster, seed
        self.network = Network(cluster)
        self.memory = memory_for(w0)
        self.ranks = tuple(range(cluster.workers))
        self._shards = shards or equal_shards(len(w0), cluster.servers, update_factory)
        self.shards = tuple(shard.part for shard in self._shards)
        self._place = {"workers": self.ranks, "seed": seed, "seconds_per_step": seconds_per_step, "note": note}
        self._place |= {"most_samples": plan.contribution, "batch_limits": plan.batch_limits}
        homes = cluster.worker_placements()
        self._place["hosts"] = tuple(placement.host_name for placement in homes)
        self._place["sites"] = tuple(placement.host.site for placement in homes)
        self._gate, self._rounds, self._settled, self._refuses = gate, rounds, settled, refuses
        self._checks_peers = gate(0) is not None
        self._update_factory, self._length = update_factory, len(w0)
        self._clocks = Random(f"{seed}/clocks")
        self._cards: dict[str, Nic] = {}
        # What has no numbers is not judged, unless some results are said to be NaN.
        some_are_bad = any(fault.kind == "bad-results" for fault in cluster.faults)
        self._tells = None if isinstance(w0, Ghost) and not some_are_bad else own_result
        self._own: dict[int, OwnResults] = {}  # by rank, of its present incarnation
        # The very numbers of `ranks`: a table by rank then finds them without reading what it has stored.
        self.workers = [self._worker(*at, w0) for at in zip(self.ranks, cluster.worker_placements(), strict=True)]
        self.cards = [party.nic for party in self.workers]
        self.servers = [self._server(s, placement, w0) for s, placement in enumerate(cluster.server_placements())]
        self.means = [SimulatedProcess(p.name, MeanServer(scheme, p.role.place), p.nic, p.skew_s) for p in self.servers]
        update = update_factory(len(w0))
        self.control = Nic(cluster.network.latency_s / 2, cluster.network.bandwidth_gbps, "", self._home().site)
        among_workers = by_peers or not self.servers
        own = OwnPartCheck(self._own) if self._checks_peers and self._own else None
        self.peers = (
            self._party("all-reduce", MeanServer, 0, w0, update, self.control, gate=own) if among_workers else None
        )
        box = scheme.Coordinator
        self.coordinator = self._party("coordinator", box, 0, None, update, self.control) if box else None
        self.others = [*self.servers, *self.means, *([self.coordinator] if self.coordinator else [])]

    def _home(self) -> Nic:
        """Returns the card beside which the coordinator is placed: that of the first server, or of the first worker."""
        return (self.servers or self.workers)[0].nic

    def _card(self, placement: DevicePlacement) -> Nic:
        """Returns the card of a host; all parties of one host share it, and so its bandwidth."""
        name = placement.host_name
        if name not in self._cards:
            self._cards[name] = self.network.nic(placement.host, name)
        return self._cards[name]

    def _party(
        self, name: str, box: type[Role], me: int, w: Any, update: Update, nic: Nic, **lent: Any
    ) -> SimulatedProcess:
        """Makes a process with a role of class `box`. Its clock is off by a drawn offset within `cluster.skew_s`
        seconds.

        The offsets are drawn in the order in which parties are made, so that order must not change between releases:
        a seed would give another run.
        """
        # What all roles are lent lies in `_place`; `lent` is what servers get on top: gradient check, rounds, sample
        # reports.
        lent |= self._refusing(name)
        place = RoleContext(me=me, w=w, update=update, **lent, **self._place)  # type: ignore[arg-type]
        limit_s = self.cluster.skew_s
        skew_s = self._clocks.uniform(-limit_s, limit_s) if limit_s else 0.0
        return SimulatedProcess(name, box(self.scheme, place), nic, skew_s)

    def _worker(self, rank: int, placement: DevicePlacement, w: Any) -> SimulatedProcess:
        assert placement.device is not None
        box = self.scheme.worker(self.cluster.servers)
        update, card = self._update_factory(self._length), self._card(placement)
        party = self._party(f"worker {rank}", box, rank, w, update, card, **self._lent(rank))
        party.speed = speed_of(placement.device, self.cluster.step_s, f"{self.seed}/speed/{rank}")
        return party

    def _lent(self, rank: int) -> dict[str, Any]:
        """Returns what an incarnation of a worker is lent: its checks, which begin anew."""
        if self._tells is not None:
            self._own[rank] = OwnResults(partial(self._tells, rank))
        note: Any = self._place["note"]
        return {"gate": PeerCheck(rank, note) if self._checks_peers else None, "own": self._own.get(rank)}

    def _refusing(self, name: str) -> dict[str, Any]:
        """Returns what a role of the process called `name` is lent to report false claims, where these are counted."""
        return {} if self._refuses is None else {"refuses": partial(self._refuses, name)}

    def _server(self, shard: int, placement: DevicePlacement, w0: Any) -> SimulatedProcess:
        """Makes server number `shard` with its part of `w0`. Without a server box it has a plain Role and carries means
        only."""
        part, update = self.shards[shard], self._shards[shard].make_update()
        box = self.scheme.server(self.cluster.servers) or Role
        lent = {"gate": self._gate(shard), "rounds": self._rounds, "settled": None if shard else self._settled}
        where = {"offset": part.start, "length": len(w0)}
        return self._party(f"server {shard}", box, shard, w0[part], update, self._card(placement), **lent, **where)

    def next_server(self, old: SimulatedProcess, means: SimulatedProcess) -> tuple[SimulatedProcess, SimulatedProcess]:
        """Returns the process that takes the place of the lost server `old`, and its carrier of means, the next
        incarnation.

        The process has no box yet, only a plain Role: it hears who comes and goes, and `revive` gives it a box once
        its state has arrived. It replaces `old` among `others`, so that membership changes reach it meanwhile.
        """
        place = replace(old.role.place, update=old.role.update, gate=self._gate(old.me))
        incarnation = old.incarnation + 1
        server = SimulatedProcess(old.name, Role(self.scheme, place), old.nic, old.skew_s, incarnation=incarnation)
        carrier = SimulatedProcess(
            old.name, MeanServer(self.scheme, place), old.nic, old.skew_s, incarnation=incarnation
        )
        for before, party in ((old, server), (means, carrier)):
            self.others[self.others.index(before)] = party
            party.sent, party.received = before.sent, before.received
        return server, carrier

    def revive(self, server: SimulatedProcess, w: Any, update: Update, tables: dict[str, Any]) -> None:
        """Gives `server` a box made from kept state: weights, update rule and the tables of `Role.state_dict`."""
        box = self.scheme.server(self.cluster.servers)
        assert box is not None
        server.role = box(self.scheme, replace(server.role.place, w=w, update=update))
        server.role.load_state_dict(tables)
        server.on = server.role.on

    def resume(self, tables: dict[str, Any]) -> None:
        """Begins where a checkpoint was taken: servers with its `tables`, workers with the clocks in them."""
        clocks = dict(tables["clocks"])
        for party in self.servers:
            party.role.load_state_dict(tables)
        for party in self.workers:
            party.role.go_on_at(clocks[party.me])

    def next_worker(self, rank: int, incarnation: int) -> SimulatedProcess:
        """Returns a process that is to take the place of worker `rank`. It has no box yet, only a plain Role."""
        old = self.workers[rank]
        party = SimulatedProcess(
            old.name, Role(self.scheme, old.role.place), old.nic, old.skew_s, old.speed, incarnation
        )
        party.here = False
        return party

    def newcomer(self, rank: int, party: SimulatedProcess | None = None) -> SimulatedProcess:
        """Makes `party`, or a new process, worker `rank`: a fresh role on the same machine, with the current model and
        the state of a peer (`paceline.core.parties.takeover`).

        The weights are those of that peer, where all workers hold the same model; otherwise they are `model()`.
        """
        old = self.workers[rank]
        peer = self._taken_over(old)
        same_everywhere = self.scheme.model_of(len(self.servers)) == "any worker"
        w = peer.role.w if peer and same_everywhere else self.model()
        update = self._update_factory(self._length)
        lent = self._lent(rank) | self._refusing(old.name)
        place = RoleContext(me=rank, w=w, update=update, **lent, **self._place)  # type: ignore[arg-type]
        role = type(old.role)(self.scheme, place)
        if peer:
            role.load_join_state(peer.role.join_state())
            role.join_late()
        party = self.workers[rank] = party or self.next_worker(rank, old.incarnation + 1)
        party.role, party.on, party.here = role, role.on, True
        party.told_at, party.sent, party.received = old.told_at, old.sent, old.received
        return party

    def _taken_over(self, but: SimulatedProcess) -> SimulatedProcess | None:
        """Returns the present worker, other than `but`, from which a newcomer takes over; None if nobody is there."""
        seen = [(party.me, party.role.join_state()) for party in self.workers if party.here and party is not but]
        return self.workers[taken_over(seen, self.scheme.model_of(len(self.servers)))] if seen else None

    def model(self) -> Any:
        """Returns the weights that are evaluated and saved: those of the servers, of one worker, or the mean of the
        workers'.

        Without any present worker, the roles of absent workers count, so that a run whose workers all left has a
        model.
        """
        here = [party for party in self.workers if party.here] or self.workers
        match self.scheme.model_of(len(self.servers)):
            case "servers":
                return self.memory.join([party.role.w for party in self.servers])
            case "any worker":
                return here[0].role.w
            case "mean of workers":
                return mean_model([party.role.model() for party in here])
