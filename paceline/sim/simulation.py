"""The discrete-event driver: it carries every effect out on one heap of events and a virtual clock.

It uses no threads, no wall clock, and no randomness but the seed's: the same arguments give the same run, bit for
bit. The cost of an event does not depend on the number of workers, and it is kept low: effects are told apart by
their type in one look-up, and the frames between an event and the scheme's own code are few.

One BSP exchange of one worker and one server, as events (`[]` is one event on the heap):

    t = 0      [resume]    generator.send(None) -> Compute(w); the workload makes the gradient at once,
                           and the result is put on the heap for the time at which the step ends
    t = 1.0    [_worked]   generator.send(Computed) -> Call(SERVERS, Push); `Messaging` posts it
    t = 1.001  [_asked]    the server's `on` yields Reply(Weights); it is posted as well
    t = 1.002  [_answered] the reply is complete; generator.send(Weights) -> Compute(w), and so on

The gradient is computed when the step begins, and handed to the scheme when the step ends. Messages that arrive in
between cannot change it, because the weights in a `Compute` are a value.

`runtime/simulated` (`paceline simulate`), the forecasts of the command line (`cli/support/scheme_forecast.py`), the
fuzzer and the conformance tests run schemes by this class. A real model runs here when `w0` and `work` come from the
engine.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from heapq import heappop
from random import Random
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import NOBODY_EXPELLED, OwnResultRule
from paceline.core.coordination.loop_messages import OwnResult
from paceline.core.effects import KEEP, RESET, Compute, Computed, Data, Train, Trained
from paceline.core.paramserver.gradient_check import SliceGradientCheck
from paceline.core.paramserver.round import Round
from paceline.core.role import Role, Update
from paceline.core.samples.sample_leases import Leases
from paceline.core.scheme import Scheme
from paceline.core.sharding import Layout
from paceline.core.trace import CpuUsed, Record, Span
from paceline.sim.checking.invariants import Invariants
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.cluster.model import Cluster, uniform
from paceline.sim.core_sharing import CoreSharing
from paceline.sim.faults.bad_results import with_bad_results
from paceline.sim.faults.coordination.lossy_members import LossyMembers
from paceline.sim.faults.coordination.members import Members
from paceline.sim.faults.fault_schedule import schedule
from paceline.sim.faults.parties.sample_leases import SimulatedLeases
from paceline.sim.kernel.event_queue import Heap
from paceline.sim.kernel.processes import Incarnation, SimulatedProcess
from paceline.sim.kernel.vectors import counter_of
from paceline.sim.kernel.workload import Limit, ModelShard, SimulatedLeaseSource, Workload, plain_sgd
from paceline.sim.message_checks import message_checks_and_lies
from paceline.sim.messaging import BLOCKED, Coding, Messaging, WireCodec
from paceline.sim.world import World

LAST_MESSAGES = 100
"""Events for each worker after the last one has left; without hazards fewer are left to happen."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Runs the garbage collector seldom while the block runs, and restores its thresholds afterwards.

    The collector walks through all objects, and a simulation leaves no cycles behind that would need it. With
    thousands of workers the default thresholds cost more than the events.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _plan(
    sim: Simulation, batch_samples: int, leases: Leases | None, limit: Limit | None, *, resumed: bool
) -> control.Plan:
    """Returns what the coordinator plans: who takes part, how servers divide the model, what bounds claims."""
    return control.Plan(
        workers=sim.cluster.workers,
        servers=sim.cluster.servers,
        length=sim.length,
        layout=Layout((0, sim.length), ()),
        seconds_per_step=(),
        optimizer="",
        contribution=sim.scheme.most_samples(batch_samples, sim.cluster.workers),
        epoch_samples=leases.samples if leases else 0,
        resumed=resumed,
        batch_limits=limit.batch_limits if limit else (),
    )


Arm = Callable[[Incarnation, Any], Any]
"""Carries out an effect of a worker."""
Arms = dict[type, Arm]
"""What carries out an effect, by the type of the effect."""


class Simulation:
    """Simulates `scheme` on `cluster`, from the weights `w0`, doing `work`.

    cluster        hosts, devices, network, faults; instead, the arguments of `paceline.sim.cluster.model.uniform`
    work           seconds are those on the reference device
    update_factory makes a server's update rule for so many parameters; SGD with lr 0.1 by default
    seed           of all randomness
    trace          takes the records of all parties, each on its writer's clock
    watched        checks every invariant during the run, which may cost more than the simulation itself
    mean           the schedule by which workers carry a `Mean` themselves; by default servers do, without them a ring
    passage        turns a message into what arrives, and the bytes that travel; None: it arrives as it is
    coding         the same for means that the workers carry
    gate           makes the gradient check of a shard, by its number
    rounds         makes the rounds of a shard, if they are not the plain ones (robust means)
    lender         leases the samples of `work`, for clusters without hazards; `leases`: the queue, for those with
    shards         the part and the update rule of each server; by default equal parts and `update_factory`
    limit          of what workers train
    batch_samples  of the largest mini-batch, if known; it bounds what a lying worker may claim
    wish           what ends the run, for clusters with hazards; without it workers train until nobody runs it on
    tables         of the servers in the checkpoint from which the run is resumed

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
        watched: bool = True,
        mean: str = "",
        passage: WireCodec | None = None,
        gate: Callable[[int], SliceGradientCheck | None] = lambda shard: None,
        rounds: Callable[[Iterable[int]], Round] | None = None,
        coding: Coding | None = None,
        lender: SimulatedLeaseSource | None = None,
        leases: Leases | None = None,
        shards: Sequence[ModelShard] = (),
        limit: Limit | None = None,
        batch_samples: int = 0,
        wish: StopWish | None = None,
        tables: dict[str, Any] | None = None,
        own_results: OwnResultRule = NOBODY_EXPELLED,
        **plain: Any,
    ) -> None:
        self.scheme, self.cluster, self.seed, self.length = scheme, cluster or uniform(**plain), seed, len(w0)
        self.now, self.events, self.trace, self.heap = 0.0, 0, trace, Heap()
        self.steps = [0] * self.cluster.workers
        self.plan = _plan(self, batch_samples, leases, limit, resumed=bool(tables))
        self.message_checks, self.lies = message_checks_and_lies(self, watched=watched)
        self.bad_results, work = with_bad_results(self, work)
        self.invariants = Invariants(self, robust=rounds is not None) if watched else None
        self.world = World(
            scheme,
            w0,
            self.cluster,
            update_factory or plain_sgd(0.1),
            seed,
            tuple(seconds_per_step) or (cluster.seconds_per_step() if cluster else ()),
            self.noted if self.invariants else trace,
            by_peers=bool(mean),
            gate=gate,
            rounds=rounds,
            settled=lender.settled if lender else None,
            own_result=self._own_result,
            shards=shards,
            plan=self.plan,
            refuses=self.message_checks.refused_by_role if self.message_checks else None,
        )
        self.lender, self._limit, self.wish, self._tables, self.own_results = lender, limit, wish, tables, own_results
        self.leasing = SimulatedLeases(self, leases, work) if leases and SimulatedLeases.suits(self) else None
        self._resume_and_watch()
        self._work, self.worked = self.leasing or work, self._worked  # bound once, for every step needs it
        self._place_coordinator(passage)
        self.network, self.sharing = self.world.network, CoreSharing.of(self, passage, counter_of(w0))
        self._arms = self._make_arms(mean or "ring", passage, coding)
        self.incarnations = [self.begin(party, 0, self.members.begin_s) for party in self.world.workers]
        schedule(self)

    def _place_coordinator(self, passage: WireCodec | None) -> None:
        """Makes what drives the coordinator: where the cluster has hazards, its messages may be lost."""
        hazards = self.cluster.hazards
        self.members: Members = LossyMembers(self, hazards, passage) if hazards else Members(self)
        self.streams = self.members.streams

    def _make_arms(self, mean: str, passage: WireCodec | None, coding: Coding | None) -> Arms:
        """Makes what carries messages, and returns what carries out the effects of workers."""
        self.messaging = Messaging(self, mean, passage, coding)
        arms: Arms = {**self.messaging.arms, Compute: self._compute, Train: self._train}
        if self.sharing is None:
            return arms
        return {kind: self._after_arithmetic(self.sharing, arm) for kind, arm in arms.items()}

    def _resume_and_watch(self) -> None:
        """Lets all begin where a checkpoint was taken, if there is one, and the invariants watch them."""
        if self._tables:
            self.world.resume(self._tables)
        if self.invariants:
            self.invariants.watch_all()
        if self.invariants and self._tables:
            clocks = [getattr(party.role, "clock", 0) for party in self.world.workers]
            self.invariants.resumed(self._tables, clocks)

    @property
    def resumed_done(self) -> Data:
        """Returns the leased samples that are in the checkpoint from which this run was resumed."""
        return tuple((self._tables or {}).get("done", ()))

    def begin(self, party: SimulatedProcess, incarnation: int, at: float = 0.0) -> Incarnation:
        """Begins an incarnation of a worker, whose loop starts at once, at `at`, or, if that is infinite, at Go."""
        rng = Random(f"{self.seed}/work/{party.me}/{incarnation}")
        begun = Incarnation(party, incarnation, party.role.run(), rng)
        if at < math.inf:
            self.heap.push(max(at, self.now), self.resume, begun)
        return begun

    # ---- for those who watch -----------------------------------------------------------------------------
    def run(
        self,
        *,
        until: float = math.inf,
        max_events: float = math.inf,
        stop: Callable[[Simulation], bool] | None = None,
    ) -> Simulation:
        """Runs until nothing is left to happen, the clock would pass `until` (virtual seconds), `max_events` events
        were handled in all, or `stop` returns True after an event. Returns this simulation, which can be run on.

        An event later than `until` stays on the heap, so a run that is continued loses none. `now` is the time of
        the last event that was handled, not `until`.

        Raises AssertionError for a violated invariant, if `watched`.
        """
        with seldom_collected():
            if self.invariants is None:
                self._run(until, max_events, stop)
                return self
            while self._run(until, min(max_events, self.invariants.look_at), stop) and self.events < max_events:
                self.invariants.look()
            if not len(self.heap):
                self.invariants.nothing_is_left()
        return self

    def _run(self, until: float, max_events: float, stop: Callable[[Simulation], bool] | None) -> bool:
        """Handles events until a limit; returns True if `max_events` was that limit."""
        # The two lists are those of the heap itself, not copies: `Heap` changes them in place, so that this loop looks
        # up no attribute per event.
        soon, due, reach = self.heap.soon, self.heap.due, self.heap.reach
        while True:  # its test is inside: Python 3.11 leaves a loop slow that ends in one
            if not (soon or due or reach()):
                break
            if self.events >= max_events:
                return True
            # `due` is sorted with the next event last. The next event is the earlier one of `due[-1]` and `soon[0]`;
            # the number in each event decides between equal times.
            entry = heappop(soon) if soon and not (due and due[-1] < soon[0]) else due.pop()
            if entry[0] > until:
                self.heap.put_back(entry)
                break
            self.now, _, act, a, b, c = entry
            self.events += 1
            act(a, b, c)
            if stop is not None and stop(self):
                break
        return False

    def judged(self, accuracy: float) -> None:
        """Tells the coordinator's role the accuracy of an evaluation, from 0 to 1."""
        party = self.world.coordinator
        if party:
            self.messaging.say_all(party, party.role.on_evaluation(self.now + party.skew_s, accuracy))

    def cpu_used(self, at: float) -> Iterator[CpuUsed]:
        """Yields the core seconds that each process has used until `at`; none where no cores are shared."""
        if self.sharing is not None:
            cores = max(host.cores for host in self.cluster.hosts)
            for party, seconds in sorted(self.sharing.used.items()):
                yield CpuUsed(at=at, party=party, seconds=seconds, cores=cores)

    def leave(self, rank: int, *, soon: bool = True) -> None:
        """Makes worker `rank` leave, cleanly, when it would begin its next step. `soon`: as in `Role.last_exchange`."""
        self.members.leaving.add(rank)
        if not soon:
            self.members.unhurried.add(rank)

    def finish(self, reason: str) -> None:
        """Lets all workers make the step that they are at and their last exchange, and leave. reason: why the run ends.

        Nobody joins any more. A newcomer that is on its way leaves at its first step.
        """
        everybody = set(range(self.cluster.workers))
        self.members.ending = reason
        self.members.unhurried |= everybody
        self.members.leaving |= everybody
        self.run(stop=lambda sim: not any(party.here for party in sim.world.workers))
        self.run(max_events=self.events + LAST_MESSAGES * self.cluster.workers)  # what they have sent arrives

    def drain(self, rank: int) -> None:
        """Makes worker `rank` leave like that, and end at once; it needs hazards, as the `drain` fault does."""
        self.members.leaving.add(rank)
        self.members.draining.add(rank)

    def crash(self, rank: int) -> None:
        """Crashes worker `rank`; the others hear of it after `suspect_after_s` of silence."""
        self.members.crash(rank)

    def join(self, rank: int) -> None:
        """Lets worker `rank` join or rejoin with a fresh role and the current model, unless it was expelled."""
        if rank not in self.members.banned:
            self.members.join(rank)

    def expel(self, rank: int, reason: str) -> None:
        """Expels worker `rank` from the run for good, after the present event."""
        self.heap.push(self.now, self.members.expel, rank, reason)

    @property
    def liars(self) -> set[int]:
        """Returns the workers that have begun to lie; the set grows."""
        return self.lies.ever if self.lies else set()

    def rightful(self, ranks: Iterable[int] | None = None) -> set[int]:
        """Returns those of `ranks`, or of all workers, that were not expelled and have never lied."""
        out = self.members.banned | self.liars
        return set(range(self.cluster.workers) if ranks is None else ranks) - out

    def all_but_the_wrongful(self, holds: Callable[[int], bool]) -> bool:
        """Returns True if `holds(rank)` for every worker that was not expelled and has never lied."""
        liars, banned = self.liars, self.members.banned
        return all(holds(rank) or rank in banned or rank in liars for rank in range(self.cluster.workers))

    def restart(self, rank: int) -> None:
        """Restarts worker `rank` in place: it loses its `run` and every call it waited for; what its role keeps on
        `self` survives.

        This is the restart that every scheme must survive at any `yield`. It does nothing for a worker that is not
        present, or that was told to stop. Membership does not change, and the other parties are not told.
        """
        incarnation = self.incarnations[rank]
        if incarnation.party.here and not self.members.stopped(incarnation.party):
            incarnation.end()
            self.members.restarted(incarnation)
            self.incarnations[rank] = self.begin(incarnation.party, incarnation.number + 1)

    def worker(self, rank: int) -> Role:
        """Returns the role of worker `rank`: of the present incarnation, which a rejoin replaces."""
        return self.world.workers[rank].role

    def server(self, shard: int) -> Role:
        """Returns the role of the server that holds `shard`."""
        return self.world.servers[shard].role

    @property
    def coordinator(self) -> Role | None:
        """Returns the scheme's coordinator role, or None if the scheme has none."""
        return self.world.coordinator.role if self.world.coordinator else None

    def model(self) -> Any:
        """Returns the weights that are evaluated and saved: those of the servers, those of one worker, or the mean of
        all workers.

        `scheme.model_of` says which of the three. The vector has the length of `w0`.
        """
        return self.world.model()

    # ---- one worker --------------------------------------------------------------------------------------
    def resume(self, incarnation: Incarnation, value: Any = None, error: Exception | None = None) -> None:
        """Resumes a worker's generator with `value`, or with `error`, and carries out its effects until one has to
        wait.

        An incarnation that has ended ignores late results. A worker that lies may bring its own role into a state
        that its scheme never meets; an exception there counts as a crash of that worker. Any other exception
        propagates to the caller of `run`.
        """
        if not incarnation.alive:
            return
        arms, generator = self._arms, incarnation.generator
        if self.sharing is not None:
            self.sharing.begin_role()
        try:
            effect = generator.throw(error) if error else generator.send(value)
            while (value := arms[type(effect)](incarnation, effect)) is not BLOCKED:
                effect = generator.send(value)
        except StopIteration:
            if incarnation.ends:  # its last exchange is over
                self.members.leave(incarnation)
            else:  # the scheme has returned: this worker trains no more, and nobody needs to be told
                incarnation.alive = False
        except Exception:
            if incarnation.rank not in self.liars:
                raise
            self.crash(incarnation.rank)  # it has brought itself to what its box never meets

    def _after_arithmetic(self, sharing: CoreSharing, arm: Arm) -> Arm:
        """Returns an arm that lets the worker's process first work for what its role has computed."""

        def carry_out(incarnation: Incarnation, effect: Any, loop: Any) -> None:
            if not incarnation.alive:
                return
            # The loop that wants this effect may have ended meanwhile, since servers went back.
            if (value := arm(incarnation, effect) if loop is incarnation.generator else None) is not BLOCKED:
                self.resume(incarnation, value)

        def begin(incarnation: Incarnation, effect: Any) -> object:
            if sharing.computed(incarnation.party, (carry_out, incarnation, effect, incarnation.generator)):
                return BLOCKED
            value = arm(incarnation, effect)
            sharing.begin_role()  # what arms compute is no work of the role
            return value

        return begin

    def _compute(self, incarnation: Incarnation, wanted: Compute) -> object:
        """Computes a mean gradient, and schedules the result for the virtual time at which the step ends.

        A worker that was asked to leave, or that has reached its limit, leaves here: between steps it holds no
        half-done work.
        """
        limit = self._limit
        if incarnation.rank in self.members.leaving or (limit is not None and limit.done(incarnation.rank)):
            return self._leave(incarnation)
        result = self._work.compute(incarnation.rank, wanted, incarnation.rng)
        steps = wanted.steps if limit is None else limit.steps(incarnation.rank)
        if self.sharing is not None:
            self.sharing.begin_work(incarnation, result, steps)
            return BLOCKED
        if speed := incarnation.party.speed:
            seconds = speed.seconds(self.now, result.seconds, steps)
            result = Computed(result.g, result.samples, seconds, result.data, result.unused)
        self.heap.put(self.now + result.seconds, self.worked, incarnation, result, steps)
        return BLOCKED

    def _train(self, incarnation: Incarnation, wanted: Train) -> object:
        """Does local steps, like `_compute`. Where a newcomer's first piece of work says KEEP, there is nothing to keep
        yet, and its optimizer begins with an empty state."""
        limit = self._limit
        if incarnation.rank in self.members.leaving or (limit is not None and limit.done(incarnation.rank)):
            return self._leave(incarnation)
        if incarnation.fresh:
            incarnation.fresh = False
            wanted = replace(wanted, memory=RESET) if wanted.memory is KEEP else wanted
        result = self._work.train(incarnation.rank, wanted, incarnation.rng)
        steps = wanted.steps if limit is None else limit.steps(incarnation.rank)
        if self.sharing is not None:
            self.sharing.begin_work(incarnation, result, steps)
            return BLOCKED
        if speed := incarnation.party.speed:
            seconds = speed.seconds(self.now, result.seconds, steps)
            result = Trained(result.x, result.samples, seconds, result.memory, result.data)
        self.heap.put(self.now + result.seconds, self.worked, incarnation, result, steps)
        return BLOCKED

    def _worked(self, incarnation: Incarnation, result: Computed | Trained, steps: int) -> None:
        """Hands a finished step to the worker, unless its incarnation ended meanwhile; then its samples go back to the
        queue."""
        if not incarnation.alive:
            if self.lender and incarnation.party.here:
                self.lender.unused(incarnation.rank, result.data)
            if self.leasing and incarnation.party.here:
                self.leasing.unused(incarnation.rank, result.data)
            return
        self.steps[incarnation.rank] += steps
        if self.trace:
            done = steps, result.samples, incarnation.exchanges, incarnation.cpu_s
            self.note_span(incarnation, "computing", result.seconds, *done)
        incarnation.exchanges = 0
        self.resume(incarnation, result)

    def _own_result(self, rank: int, number: int, finite: bool, mean: bool) -> None:
        """Lets the coordinator hear what worker `rank` found of its own result, after the present event."""
        self.heap.push(self.now, self.members.tells_result, rank, OwnResult(number=number, finite=finite, mean=mean))

    def _leave(self, incarnation: Incarnation) -> object:
        """Lets a worker make its last exchange and then leave; one that was evicted without knowing leaves at once.

        One that leaves by itself, and not because there is no more work or the run ends, is in a hurry.
        """
        if incarnation.party.here:
            asked = incarnation.rank in self.members.leaving
            ends = incarnation.rank in self.members.unhurried or self.members.stopped(incarnation.party)
            incarnation.begin_last_exchange(soon=asked and not ends)
            self.resume(incarnation)
        else:
            self.members.leave(incarnation)
        return BLOCKED

    def noted(self, record: Record) -> None:
        """Gives a record of a role to the invariants first, so that a violation is raised before the trace shows the
        record."""
        assert self.invariants is not None
        self.invariants.record(record)
        if self.trace:
            self.trace(record)

    def note_span(
        self,
        incarnation: Incarnation,
        activity: str,
        seconds: float,
        steps: int = 0,
        samples: int = 0,
        exchanges: int = 0,
        cpu: float = 0.0,
    ) -> None:
        """Writes a span into the trace: `incarnation` did `activity` for the `seconds` that end now, on its own
        clock."""
        assert self.trace is not None
        at = self.now + incarnation.party.skew_s
        self.trace(
            Span(
                at=at,
                rank=incarnation.rank,
                activity=activity,
                seconds=seconds,
                steps=steps,
                samples=samples,
                exchanges=exchanges,
                cpu=cpu,
            )
        )
