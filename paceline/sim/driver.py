"""The discrete-event driver: carries every effect out on one heap of events and a virtual clock.

No threads, no wall clock, no randomness but the seed's: the same arguments give the same run, bit for bit. What an
event costs does not depend on how many workers there are, and it is kept low: effects are told apart by their type
in one look-up, and the frames between an event and the scheme's own code are few.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

from paceline.core.effects import (
    COORDINATOR,
    KEEP,
    RESET,
    SERVERS,
    Call,
    Compute,
    Computed,
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
from paceline.core.gate import Gate
from paceline.core.mean import Averaged, Part
from paceline.core.message import gather, scatter, size
from paceline.core.role import Role, Update
from paceline.core.scheme import Scheme
from paceline.core.trace import Record, Span
from paceline.sim.carriage import Carriage
from paceline.sim.cluster import Cluster, uniform
from paceline.sim.faults import schedule
from paceline.sim.heap import Heap
from paceline.sim.invariants import Invariants
from paceline.sim.members import Members
from paceline.sim.news import ConfirmedMembers
from paceline.sim.parties import Errand, Life, Party
from paceline.sim.workload import Workload, plain_sgd
from paceline.sim.world import World


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Python's collector of cycles walks through every object there is, and here nothing leaves cycles behind."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


Passage = Callable[[Party, Party, Any], tuple[Any, int]]


class Coding(Protocol):
    """What becomes of means that the workers carry themselves."""

    def handed_in(self, rank: int, part: Part) -> tuple[Part, int, bool]:
        """As the others get it; the bytes that travel; whether everybody gets all of them, and not their sum."""

    def handed_out(self, mean: Averaged) -> Averaged: ...


BLOCKED = object()
"""What carrying out an effect gives when its result comes later."""


class Simulation:
    """`scheme` on `cluster`, from the weights `w0`, doing `work`, whose seconds are those on the reference device.

    Instead of a cluster the arguments of `paceline.sim.cluster.uniform` may be given. `mean`: the schedule by which the
    workers carry a `Mean` among themselves; by default the servers do, and without servers a ring. `trace` takes the
    records of all parties, each on its writer's clock. `watched`: every invariant is checked while it runs, which may
    cost more than the simulation itself. `passage`: what becomes of a message on its way from one party to another,
    and the bytes that travel; None where it arrives as it is. `coding`: the same of means that the workers carry.
    `gate`: makes that of a shard, by its number. Raises ConfigError when the scheme cannot run on such a cluster.
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
        watched: bool = True,
        mean: str = "",
        passage: Passage | None = None,
        gate: Callable[[int], Gate | None] = lambda shard: None,
        coding: Coding | None = None,
        **plain: Any,
    ) -> None:
        measured = tuple(seconds_per_step) or (cluster.seconds_per_step() if cluster else ())
        cluster = cluster or uniform(**plain)
        self.scheme = scheme
        self.cluster = cluster
        self.seed = seed
        self.now = 0.0
        self.events = 0
        self.steps = [0] * cluster.workers
        self.trace = trace
        self.heap = Heap()
        self.invariants = Invariants(self) if watched else None
        note = self._note if self.invariants else trace
        self.world = World(
            scheme, w0, cluster, update_factory or plain_sgd(0.1), seed, measured, note, by_peers=bool(mean), gate=gate
        )
        if self.invariants:
            self.invariants.watch_all()
        self.network = self.world.network
        self.carriage = Carriage(self.network, self.world.cards, mean or "ring")
        # Bound once, for every message needs them.
        self._events, self._number = self.heap.events, self.heap.number
        self._on_asked, self._on_answered, self._on_heard = self._asked, self._answered, self._heard
        self._on_worked = self._worked
        self._passage, self._coding = passage, coding
        self._work = work
        self._arms: dict[type, Callable[[Life, Any], Any]] = {
            Compute: self._compute,
            Train: self._train,
            Call: self._call,
            Mean: self._meet,
            Tell: self._tell,
            Reply: self._answer,
            Start: self._start,
            Wait: self._wait,
        }
        boss = self.world.coordinator
        self._several: dict[To, list[Party]] = {SERVERS: self.world.servers}
        if boss:
            self._several[COORDINATOR] = [boss]
        self._gather_members(passage)
        self.lives = [self.begin(party, incarnation=0) for party in self.world.workers]
        schedule(self)

    def _gather_members(self, passage: Passage | None) -> None:
        hazards = self.cluster.hazards
        confirmed = ConfirmedMembers(self, hazards, passage) if hazards else None
        self.members = confirmed or Members(self)
        self.streams = confirmed.streams if confirmed else None
        self._post = self.streams.post if self.streams else self._post_directly

    def begin(self, party: Party, incarnation: int, at: float = 0.0) -> Life:
        """A life of a worker, whose loop starts at once or at `at`."""
        rng = Random(f"{self.seed}/work/{party.me}/{incarnation}")
        life = Life(party, incarnation, party.role.run(), rng)
        self.heap.push(max(at, self.now), self._resume, life)
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
        with seldom_collected():
            if self.invariants is None:
                self._run(until, max_events, stop)
                return self
            while self._run(until, min(max_events, self.invariants.look_at), stop) and self.events < max_events:
                self.invariants.look()
            if not self.heap.events:
                self.invariants.nothing_is_left()
        return self

    def _run(self, until: float, max_events: float, stop: Callable[[Simulation], bool] | None) -> bool:
        """True when only `max_events` ended it."""
        events = self.heap.events
        while events and (next_at := events[0][0]) <= until:
            if self.events >= max_events:
                return True
            _, _, act, args = heappop(events)
            self.now = next_at
            self.events += 1
            act(*args)
            if stop is not None and stop(self):
                return False
        return False

    def judged(self, accuracy: float) -> None:
        """The model has been evaluated, and the coordinator hears of it."""
        party = self.world.coordinator
        if party:
            self.say_all(party, party.role.judged(self.now + party.skew_s, accuracy))

    def leave(self, rank: int) -> None:
        """Worker `rank` shall leave, cleanly, where it would begin its next step."""
        self.members.leaving.add(rank)

    def crash(self, rank: int) -> None:
        """Worker `rank` is gone without goodbye; the others hear of it when its lease has run out."""
        self.members.crash(rank)

    def join(self, rank: int) -> None:
        """Worker `rank` comes (back): a fresh role that begins with the current model."""
        self.members.join(rank)

    def restart(self, rank: int) -> None:
        """Worker `rank` loses its `run` and all it waited for, and starts anew; what lives on its role survives."""
        life = self.lives[rank]
        if life.party.here:
            life.end()
            self.lives[rank] = self.begin(life.party, life.incarnation + 1)

    def worker(self, rank: int) -> Role:
        return self.world.workers[rank].role

    def server(self, shard: int) -> Role:
        return self.world.servers[shard].role

    @property
    def coordinator(self) -> Role | None:
        return self.world.coordinator.role if self.world.coordinator else None

    def model(self) -> Any:
        """The weights that are evaluated and saved: on the servers, of a worker, or the mean of the workers'."""
        return self.world.model()

    # ---- one worker --------------------------------------------------------------------------------------
    def _resume(self, life: Life, value: Any = None, error: Exception | None = None) -> None:
        if not life.alive:
            return
        arms, send = self._arms, life.send
        try:
            effect = life.generator.throw(error) if error else send(value)
            while (value := arms[type(effect)](life, effect)) is not BLOCKED:
                effect = send(value)
        except StopIteration:
            life.alive = False

    def _compute(self, life: Life, wanted: Compute) -> object:
        if life.rank in self.members.leaving:
            return self._leave(life)
        result = self._work.compute(life.rank, wanted, life.rng)
        if speed := life.party.speed:
            seconds = speed.seconds(self.now, result.seconds, wanted.steps)
            result = Computed(result.g, result.samples, seconds)
        heappush(
            self._events, (self.now + result.seconds, self._number(), self._on_worked, (life, result, wanted.steps))
        )
        return BLOCKED

    def _train(self, life: Life, wanted: Train) -> object:
        if life.rank in self.members.leaving:
            return self._leave(life)
        if life.fresh:
            life.fresh = False
            wanted = replace(wanted, memory=RESET) if wanted.memory is KEEP else wanted
        result = self._work.train(life.rank, wanted, life.rng)
        if speed := life.party.speed:
            seconds = speed.seconds(self.now, result.seconds, wanted.steps)
            result = Trained(result.x, result.samples, seconds, result.memory)
        heappush(
            self._events, (self.now + result.seconds, self._number(), self._on_worked, (life, result, wanted.steps))
        )
        return BLOCKED

    def _worked(self, life: Life, result: Computed | Trained, steps: int) -> None:
        if not life.alive:
            return
        self.steps[life.rank] += steps
        if self.trace:
            self._note_span(life, "computing", result.seconds, steps, result.samples, life.exchanges)
        life.exchanges = 0
        self._resume(life, result)

    def _leave(self, life: Life) -> object:
        self.members.leave(life)
        return BLOCKED

    # ---- calls and means, in the foreground or not ---------------------------------------------------------
    def _call(self, life: Life, call: Call) -> object:
        if call.to != COORDINATOR:
            life.exchanges = 1
        life.awaited, life.blocked_at = self._ask(life, self._addressees(call.to), call.message), self.now
        return BLOCKED

    def _meet(self, life: Life, mean: Mean) -> object:
        life.exchanges = 1
        life.awaited, life.blocked_at = self._begin_mean(life, mean), self.now
        return BLOCKED

    def _start(self, life: Life, start: Start) -> Errand:
        effect = start.effect
        if isinstance(effect, Mean) or effect.to != COORDINATOR:
            life.exchanges = 1
        if isinstance(effect, Mean):
            return self._begin_mean(life, effect)
        return self._ask(life, self._addressees(effect.to), effect.message)

    def _wait(self, life: Life, wait: Wait) -> Any:
        errand = wait.ticket
        assert isinstance(errand, Errand)
        if not errand.done:
            life.awaited, life.blocked_at = errand, self.now
            return BLOCKED
        if errand.error:
            self.heap.push(self.now, self._resume, life, None, errand.error)
            return BLOCKED
        return errand.value

    def _begin_mean(self, life: Life, mean: Mean) -> Errand:
        part = Part.of(mean)
        errand = self._ask(life, self.world.means, part) if self.world.peers is None else self._ask_peers(life, part)
        if self.invariants:
            self.invariants.mean_begins(errand)
        return errand

    def _ask_peers(self, life: Life, part: Part) -> Errand:
        assert self.world.peers is not None
        errand = Errand(life)
        errand.among = part.among
        if not life.party.here:  # it was declared dead, and does not know
            return errand
        if self._coding is None:
            errand.nbytes = size(part)
        else:
            part, errand.nbytes, errand.gathered = self._coding.handed_in(life.rank, part)
        self._asked(self.world.peers, errand, part)
        return errand

    def _ask(self, life: Life, parties: list[Party], message: Any) -> Errand:
        errand = Errand(life)
        if len(parties) > 1:
            errand.missing, errand.parts = len(parties), [None] * len(parties)
            for party, part in zip(parties, self._split(message, parties), strict=True):
                at = self._post(life.party, party, part, self._on_asked, (party, errand, part))
                errand.sending_s = max(errand.sending_s, at - self.now)
            return errand
        party = parties[0]
        at = self._post(life.party, party, message, self._on_asked, (party, errand, message))
        if self.trace:
            errand.sending_s = at - self.now
        return errand

    def _asked(self, party: Party, errand: Errand, message: Any) -> None:
        if not party.here:
            self.members.asked_in_vain(party, errand)
            return
        party.admit(errand)
        for effect in party.on(self.now + party.skew_s, errand.life.rank, message):
            if type(effect) is Reply:
                self._reply(party, effect.to, effect.message)
            else:
                self.say(party, effect)

    def _answered(self, errand: Errand, message: Any, shard: int) -> None:
        if errand.parts is not None:
            errand.parts[shard] = message
            errand.missing -= 1
            if errand.missing:
                return
            message = gather(errand.parts, self.world.memory)
        errand.value = message
        errand.done = True
        if errand.life.awaited is errand:
            self._waited(errand)
            self._resume(errand.life, message)

    def lost(self, errand: Errand, name: str) -> None:
        """Party `name` will never answer."""
        errand.error = PeerLost(f"{name} left before it answered worker {errand.life.rank}")
        errand.done = True
        if errand.life.awaited is errand:
            self._waited(errand)
            self._resume(errand.life, None, errand.error)

    def _waited(self, errand: Errand) -> None:
        life = errand.life
        life.awaited = None
        if self.trace and life.alive:
            waited = self.now - life.blocked_at
            communicating = min(waited, errand.sending_s + errand.receiving_s)
            self._note_span(life, "waiting", waited - communicating)
            self._note_span(life, "communicating", communicating)

    # ---- what a party says and hears ---------------------------------------------------------------------
    def _tell(self, life: Life, tell: Tell) -> None:
        self.say(life.party, tell)

    def _answer(self, life: Life, reply: Reply) -> None:
        self._reply(life.party, reply.to, reply.message)

    def _heard(self, party: Party, src: Party, message: Any) -> None:
        if party.hears:
            self.say_all(party, party.on(self.now + party.skew_s, src.me, message))

    def say_all(self, party: Party, effects: Iterable[Tell | Reply]) -> None:
        for effect in effects:
            self.say(party, effect)

    def say(self, party: Party, effect: Tell | Reply) -> None:
        """Send what a party's role says."""
        if type(effect) is Reply:
            self._reply(party, effect.to, effect.message)
            return
        parties = self._addressees(effect.to)
        for other, part in zip(parties, self._split(effect.message, parties), strict=True):
            self._post(party, other, part, self._on_heard, (other, party, part))

    def _reply(self, party: Party, to: int, message: Any) -> None:
        calls = party.open.get(to)
        if not calls:
            if not party.here:
                return  # it was declared dead, and whoever asked has been told so
            raise ProtocolError(f"{party.name} answers worker {to}, which has asked nothing: {message!r}")
        errand = calls.pop(0)
        if errand.among:
            self._end_mean(errand, message)
            return
        at = self._post(party, errand.life.party, message, self._on_answered, (errand, message, party.me))
        if self.trace:
            errand.receiving_s = max(errand.receiving_s, at - self.now)

    def _end_mean(self, errand: Errand, message: Any) -> None:
        """All have come; every member has the mean as long after as its carrier takes."""
        nbytes, party = errand.nbytes, errand.life.party
        if self._coding is not None:
            message = self._coding.handed_out(message)
        errand.receiving_s = self.carriage.seconds(errand.among, nbytes, gathered=errand.gathered)
        sent, received = self.carriage.moved(errand.among, party.me, nbytes, gathered=errand.gathered)
        party.sent += sent
        party.received += received
        self.heap.push(self.now + errand.receiving_s, self._on_answered, errand, message, 0)

    # ---- the wire ------------------------------------------------------------------------------------------
    def _addressees(self, to: To) -> list[Party]:
        several = self._several.get(to)
        if several is not None:
            return several
        assert isinstance(to, int), f"{self.scheme.name} has no {to}"
        return [self.world.workers[to]]

    def _split(self, message: Any, parties: list[Party]) -> list[Any]:
        to_shards = parties is self.world.servers or parties is self.world.means
        return scatter(message, self.world.shards) if to_shards else [message]

    def _post_directly(
        self, src: Party, dst: Party, message: Any, act: Callable[..., None], args: tuple[Any, ...]
    ) -> float:
        """When it will have arrived."""
        if self._passage is None:
            nbytes = size(message)
        else:
            arriving, nbytes = self._passage(src, dst, message)
            args = tuple([arriving if arg is message else arg for arg in args])
        if nbytes:
            src.sent += nbytes
            dst.received += nbytes
        at = self.network.arrival(self.now, src.card, dst.card, nbytes)
        heappush(self._events, (at, self._number(), act, args))
        return at

    def _note(self, record: Record) -> None:
        assert self.invariants is not None
        self.invariants.record(record)
        if self.trace:
            self.trace(record)

    def _note_span(
        self, life: Life, activity: str, seconds: float, steps: int = 0, samples: int = 0, exchanges: int = 0
    ) -> None:
        assert self.trace is not None
        at = self.now + life.party.skew_s
        self.trace(
            Span(
                at=at,
                rank=life.rank,
                activity=activity,
                seconds=seconds,
                steps=steps,
                samples=samples,
                exchanges=exchanges,
            )
        )
