"""The discrete-event driver: carries every effect out on one heap of events and a virtual clock.

No threads, no wall clock, no randomness but the seed's: the same arguments give the same run, bit for bit. What an
event costs does not depend on how many workers there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, assert_never

from paceline.core.effects import (
    COORDINATOR,
    SERVERS,
    Call,
    Compute,
    Computed,
    Effect,
    Mean,
    Reply,
    Start,
    Tell,
    To,
    Train,
    Trained,
    Wait,
)
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.mean import MeanServer, Part
from paceline.core.message import gather, scatter, size
from paceline.core.role import Place, Role, Update
from paceline.core.scheme import Scheme
from paceline.core.trace import Membership, Record, Span
from paceline.core.vector import cut
from paceline.sim.cluster import Cluster, uniform
from paceline.sim.heap import Heap
from paceline.sim.memory import memory_for
from paceline.sim.network import Card, Network
from paceline.sim.parties import Errand, Life, Party
from paceline.sim.workload import Workload, plain_sgd

BLOCKED = object()
"""What carrying out an effect gives when its result comes later."""


class Simulation:
    """`scheme` on `cluster`, from the weights `w0`, doing `work`, whose seconds are those on the reference device.

    Instead of a cluster the arguments of `paceline.sim.cluster.uniform` may be given. Without servers a `Mean` is a
    ring all-reduce; otherwise the servers carry it. `trace` takes the records of all parties, each on its writer's clock.
    Raises ConfigError when the scheme cannot run on such a cluster.
    """

    def __init__(
        self,
        scheme: Scheme,
        w0: Any,
        work: Workload,
        *,
        cluster: Cluster | None = None,
        update_factory: Callable[[int], Update] | None = None,
        seed: int = 0,
        seconds_per_step: Iterable[float] = (),
        trace: Callable[[Record], None] | None = None,
        **plain: Any,
    ) -> None:
        cluster = cluster or uniform(**plain)
        workers, servers, skew_s = cluster.workers, cluster.servers, cluster.skew_s
        scheme.check(workers, servers)
        self.scheme = scheme
        self.now = 0.0
        self.events = 0
        self.steps = [0] * workers
        self._work = work
        self._trace = trace
        self._seed = seed
        self._heap = Heap()
        self._network = Network(cluster.network.latency_s, cluster.network.bandwidth_gbps)
        self._memory = memory_for(w0)
        self._clocks = Random(f"{seed}/clocks")
        self._skew_s = skew_s
        self._leaving: set[int] = set()
        self._ranks = tuple(range(workers))
        self._seconds_per_step = tuple(seconds_per_step)
        self._settle(w0, servers, update_factory or plain_sgd(0.1))
        self._lives = [self._live(rank, incarnation=0) for rank in self._ranks]

    # ---- who takes part ----------------------------------------------------------------------------------
    def _settle(self, w0: Any, servers: int, update_factory: Callable[[int], Update]) -> None:
        update = update_factory(len(w0))

        def party(
            name: str, box: type[Role], me: int, w: Any, update: Update = update, at: Party | None = None
        ) -> Party:
            skew_s = at.skew_s if at else self._clocks.uniform(-self._skew_s, self._skew_s)
            place = Place(
                me=me,
                workers=self._ranks,
                w=w,
                update=update,
                seed=self._seed,
                seconds_per_step=self._seconds_per_step,
                note=self._trace,
            )
            return Party(name, box(self.scheme, place), at.card if at else Card(), skew_s)

        worker, server = self.scheme.worker(servers), self.scheme.server(servers) or Role
        self._workers = [party(f"worker {r}", worker, r, w0, update_factory(len(w0))) for r in self._ranks]
        self._shards = cut(len(w0), servers) if servers else ()
        self._servers = [
            party(f"server {s}", server, s, w0[part], update_factory(part.stop - part.start))
            for s, part in enumerate(self._shards)
        ]
        # Servers carry means beside the scheme's own box, on the same card and clock; without servers nobody does.
        self._means = [party(f"server {s}", MeanServer, s, p.role.w, at=p) for s, p in enumerate(self._servers)]
        self._ring = None if servers else party("all-reduce", MeanServer, 0, w0)
        box = self.scheme.Coordinator
        self._coordinator = party("coordinator", box, 0, None) if box else None
        self._others = [*self._servers, *self._means, *([self._coordinator] if self._coordinator else [])]

    def _live(self, rank: int, incarnation: int) -> Life:
        party = self._workers[rank]
        rng = Random(f"{self._seed}/work/{rank}/{incarnation}")
        life = Life(rank, incarnation, party, party.role.run(), rng)
        self._heap.push(self.now, self._resume, life)
        return life

    # ---- for those who watch -----------------------------------------------------------------------------
    def run(
        self,
        *,
        until: float = math.inf,
        max_events: float = math.inf,
        stop: Callable[[Simulation], bool] | None = None,
    ) -> Simulation:
        """Until nothing is left to happen, the clock would pass `until`, there were `max_events` events in all,
        or `stop` says so after an event."""
        pop = self._heap.pop
        while self.events < max_events and (event := pop(until)):
            self.now, _, act, args = event
            self.events += 1
            act(*args)
            if stop is not None and stop(self):
                break
        return self

    def leave(self, rank: int) -> None:
        """Worker `rank` shall leave, cleanly, where it would begin its next step."""
        self._leaving.add(rank)

    def restart(self, rank: int) -> None:
        """Worker `rank` loses its `run` and all it waited for, and starts anew; what lives on its role survives."""
        life = self._lives[rank]
        life.end()
        if life.party.here:
            self._lives[rank] = self._live(rank, life.incarnation + 1)

    def worker(self, rank: int) -> Role:
        return self._workers[rank].role

    def server(self, shard: int) -> Role:
        return self._servers[shard].role

    @property
    def coordinator(self) -> Role | None:
        return self._coordinator.role if self._coordinator else None

    def model(self) -> Any:
        """The weights on the servers, or worker 0's where the scheme keeps them on its workers."""
        if self.scheme.model_on_servers(len(self._servers)):
            return self._memory.join([party.role.w for party in self._servers])
        return self._workers[0].role.w

    # ---- one worker --------------------------------------------------------------------------------------
    def _resume(self, life: Life, value: Any = None, error: Exception | None = None) -> None:
        if not life.alive:
            return
        try:
            effect = life.generator.throw(error) if error else life.generator.send(value)
            while (value := self._carry_out(life, effect)) is not BLOCKED:
                effect = life.generator.send(value)
        except StopIteration:
            life.alive = False

    def _carry_out(self, life: Life, effect: Effect) -> Any:
        match effect:
            case Call() | Mean():
                return self._await(life, self._begin(life, effect))
            case Compute() | Train() if life.rank in self._leaving:
                return self._leave(life)
            case Compute(steps=steps):
                return self._work_for(life, self._work.compute(life.rank, effect, life.rng), steps)
            case Train(steps=steps):
                return self._work_for(life, self._work.train(life.rank, effect, life.rng), steps)
            case Start(inner):
                return self._begin(life, inner)
            case Wait(ticket):
                assert isinstance(ticket, Errand)
                return self._await(life, ticket)
            case Tell() | Reply():
                return self._say(life.party, effect)
            case _:
                assert_never(effect)

    def _work_for(self, life: Life, result: Computed | Trained, steps: int) -> object:
        self._heap.push(self.now + result.seconds, self._worked, life, result, steps)
        return BLOCKED

    def _worked(self, life: Life, result: Computed | Trained, steps: int) -> None:
        if not life.alive:
            return
        self.steps[life.rank] += steps
        if self._trace:
            self._note_span(life, "computing", result.seconds, steps, result.samples)
        self._resume(life, result)

    def _leave(self, life: Life) -> object:
        life.end()
        leaver, rank = life.party, life.rank
        leaver.here = False
        if self._trace:
            self._trace(Membership(at=self.now + leaver.skew_s, party=leaver.name, event="left", reason="asked to"))
        for calls in leaver.open.values():
            for errand, _ in calls:
                self._heap.push(self.now, self._lost, errand, leaver.name)
        leaver.open.clear()
        for party in [*self._others, *self._workers]:
            if party.here:
                self._heap.push(self._network.arrival(self.now, leaver.card, party.card, 0), self._gone, party, rank)
        if self._ring:
            self._gone(self._ring, rank)
        return BLOCKED

    def _gone(self, party: Party, rank: int) -> None:
        party.open.pop(rank, None)
        self._say_all(party, party.role.gone(self.now + party.skew_s, rank))

    # ---- calls and means, in the foreground or not ---------------------------------------------------------
    def _begin(self, life: Life, effect: Call | Mean) -> Errand:
        match effect:
            case Call(to, message):
                return self._ask(life, self._addressees(to), message)
            case Mean(v, among, tag, weight):
                part = Part(v=v, among=among, tag=str(tag), weight=weight)
                if self._ring is None:
                    return self._ask(life, self._means, part)
                errand = Errand(life, 1, members=len(among))
                self._asked(self._ring, errand, 0, part)
                return errand
            case _:
                assert_never(effect)

    def _ask(self, life: Life, parties: list[Party], message: Any) -> Errand:
        errand = Errand(life, len(parties))
        for index, part in enumerate(self._split(message, parties)):
            self._post(life.party, parties[index], size(part), self._asked, parties[index], errand, index, part)
        return errand

    def _asked(self, party: Party, errand: Errand, index: int, message: Any) -> None:
        if not party.here:
            self._lost(errand, party.name)
            return
        party.admit(errand, index)
        self._heard(party, errand.life.rank, message)

    def _answered(self, errand: Errand, index: int, message: Any) -> None:
        errand.parts[index] = message
        errand.missing -= 1
        if not errand.missing:
            errand.value = gather(errand.parts, self._memory)
            self._finish(errand)

    def _lost(self, errand: Errand, name: str) -> None:
        errand.error = PeerLost(f"{name} left before it answered worker {errand.life.rank}")
        self._finish(errand)

    def _finish(self, errand: Errand) -> None:
        life = errand.life
        errand.done = True
        if life.awaited is not errand or not life.alive:
            return
        life.awaited = None
        if self._trace:
            self._note_span(life, "waiting", self.now - life.blocked_at)
        self._resume(life, errand.value, errand.error)

    def _await(self, life: Life, errand: Errand) -> Any:
        if not errand.done:
            life.awaited, life.blocked_at = errand, self.now
            return BLOCKED
        if errand.error:
            self._heap.push(self.now, self._resume, life, None, errand.error)
            return BLOCKED
        return errand.value

    # ---- what a party says and hears ---------------------------------------------------------------------
    def _heard(self, party: Party, src: int, message: Any) -> None:
        if party.here:
            self._say_all(party, party.role.on(self.now + party.skew_s, src, message))

    def _say_all(self, party: Party, effects: Iterable[Tell | Reply]) -> None:
        for effect in effects:
            self._say(party, effect)

    def _say(self, party: Party, effect: Tell | Reply) -> None:
        match effect:
            case Reply(to, message):
                self._reply(party, to, message)
            case Tell(to, message):
                parties = self._addressees(to)
                for other, part in zip(parties, self._split(message, parties), strict=True):
                    self._post(party, other, size(part), self._heard, other, party.role.me, part)
            case _:
                assert_never(effect)

    def _reply(self, party: Party, to: int, message: Any) -> None:
        calls = party.open.get(to)
        if not calls:
            raise ProtocolError(f"{party.name} answers worker {to}, which has asked nothing: {message!r}")
        errand, index = calls.popleft()
        if party is self._ring:
            seconds = self._network.ring_seconds(errand.members, size(message))
            self._heap.push(self.now + seconds, self._answered, errand, index, message)
        else:
            self._post(party, self._workers[to], size(message), self._answered, errand, index, message)

    # ---- the wire ------------------------------------------------------------------------------------------
    def _addressees(self, to: To) -> list[Party]:
        if to == SERVERS:
            return self._servers
        if to == COORDINATOR:
            assert self._coordinator is not None, f"{self.scheme.name} has no coordinator"
            return [self._coordinator]
        return [self._workers[to]]

    def _split(self, message: Any, parties: list[Party]) -> list[Any]:
        return scatter(message, self._shards) if parties is self._servers or parties is self._means else [message]

    def _post(self, src: Party, dst: Party, nbytes: int, act: Callable[..., None], *args: Any) -> None:
        self._heap.push(self._network.arrival(self.now, src.card, dst.card, nbytes), act, *args)

    def _note_span(self, life: Life, activity: str, seconds: float, steps: int = 0, samples: int = 0) -> None:
        assert self._trace is not None
        at = self.now + life.party.skew_s
        self._trace(Span(at=at, rank=life.rank, activity=activity, seconds=seconds, steps=steps, samples=samples))
