"""Carries messages between simulated parties: calls and answers, tells, means; and how they travel.

    effect        here                                              the worker goes on
    Call          one message to each party, answers are joined     when the last answer has arrived
    Mean          a call to the servers' carriers; or, if workers   when the mean is there, after the time of the
                  carry it, to `world.peers`                        schedule (`CollectiveTiming`)
    Tell, Reply   one message to each party                         at once
    Start         begins a Call or Mean                             at once, with a ticket
    Wait          of a ticket                                       when its result is there

A message with hazards passes `LossyLinks`; without, it is one event on the heap, at the time of its arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from paceline.core.collective.mean_server import Averaged, Part
from paceline.core.effects import COORDINATOR, SERVERS, Call, Mean, Reply, Start, Tell, To, Wait
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.message import gather, measures, scatter, size
from paceline.sim.cluster.collective_time import CollectiveTiming
from paceline.sim.kernel.processes import Incarnation, PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.simulation import Simulation

WireCodec = Callable[[SimulatedProcess, SimulatedProcess, Any], tuple[Any, int]]


class Coding(Protocol):
    """Encodes the means that the workers carry themselves."""

    def handed_in(self, rank: int, part: Part) -> tuple[Part, int, bool]:
        """Returns the part as the others get it, its bytes, and whether everybody gets all parts, not their sum."""

    def handed_out(self, mean: Averaged) -> Averaged: ...


BLOCKED = object()
"""Returned by an arm when the result of its effect comes later."""


class Messaging:
    """Carries all messages of `sim`. `arms`: the functions that carry out a worker's effects, by type.

    `mean`: the schedule by which workers carry a `Mean` among themselves. `passage`, `coding`: see `Simulation`.
    """

    def __init__(self, sim: Simulation, mean: str, passage: WireCodec | None, coding: Coding | None) -> None:
        self._sim, self._world = sim, sim.world
        self._collective_timing = CollectiveTiming(sim.network, sim.world.cards, mean)
        self._passage, self._coding = passage, coding
        self._heap, self._network = sim.heap, sim.network
        # What the arrival of a message does. Bound once, for every message needs them.
        self.asked, self.answered, self.heard = self._asked, self._answered, self._heard
        self._post = sim.streams.post if sim.streams else self._post_directly
        self._lies, self._message_checks = sim.lies, sim.message_checks
        self._twice = self._sim.members.servers is not None  # who asks again may be answered again
        self._several: dict[To, list[SimulatedProcess]] = {SERVERS: self._world.servers}
        if self._world.coordinator:
            self._several[COORDINATOR] = [self._world.coordinator]
        self.arms: dict[type, Callable[[Incarnation, Any], Any]] = {
            Call: self._call,
            Mean: self._meet,
            Tell: self._tell,
            Reply: self._answer,
            Start: self._start,
            Wait: self._wait,
        }

    # ---- calls and means, in the foreground or not ---------------------------------------------------------
    def _call(self, incarnation: Incarnation, call: Call) -> object:
        if call.to != COORDINATOR:
            incarnation.exchanges = 1
        parties = self._several.get(call.to) or self._addressees(call.to)
        incarnation.awaited, incarnation.blocked_at = self._ask(incarnation, parties, call.message), self._sim.now
        return BLOCKED

    def _meet(self, incarnation: Incarnation, mean: Mean) -> object:
        incarnation.exchanges = 1
        incarnation.awaited, incarnation.blocked_at = self._begin_mean(incarnation, mean), self._sim.now
        return BLOCKED

    def _start(self, incarnation: Incarnation, start: Start) -> PendingCall:
        effect = start.effect
        if isinstance(effect, Mean) or effect.to != COORDINATOR:
            incarnation.exchanges = 1
        if isinstance(effect, Mean):
            return self._begin_mean(incarnation, effect)
        return self._ask(incarnation, self._addressees(effect.to), effect.message)

    def _wait(self, incarnation: Incarnation, wait: Wait) -> Any:
        call = wait.ticket
        assert isinstance(call, PendingCall)
        if not call.done:
            incarnation.awaited, incarnation.blocked_at = call, self._sim.now
            return BLOCKED
        if call.error:
            self._sim.heap.push(self._sim.now, self._sim.resume, incarnation, None, call.error)
            return BLOCKED
        return call.value

    def _begin_mean(self, incarnation: Incarnation, mean: Mean) -> PendingCall:
        part = Part.of(mean)
        call = (
            self._ask(incarnation, self._world.means, part)
            if self._world.peers is None
            else self._ask_peers(incarnation, part)
        )
        if self._sim.invariants:
            self._sim.invariants.mean_begins(call)
        return call

    def _ask_peers(self, incarnation: Incarnation, part: Part) -> PendingCall:
        assert self._world.peers is not None
        call = PendingCall(incarnation)
        call.among = part.among
        if not incarnation.party.here:  # it was declared dead, and does not know
            return call
        if self._coding is None:
            call.nbytes = size(part)
        else:
            part, call.nbytes, call.gathered = self._coding.handed_in(incarnation.rank, part)
        self._asked(self._world.peers, call, part)
        return call

    def _ask(self, incarnation: Incarnation, parties: list[SimulatedProcess], message: Any) -> PendingCall:
        call, post = PendingCall(incarnation), self._post
        if len(parties) > 1:
            call.missing, call.parts = len(parties), [None] * len(parties)
            for party, part in zip(parties, self._said(incarnation.party, self._split(message, parties)), strict=True):
                at = post(incarnation.party, party, part, self.asked, (party, call, part))
                call.sending_s = max(call.sending_s, at - self._sim.now)
            return call
        party = parties[0]
        if self._lies:
            (message,) = self._said(incarnation.party, [message])
        at = post(incarnation.party, party, message, self.asked, (party, call, message))
        if self._sim.trace:
            call.sending_s = at - self._sim.now
        return call

    def _asked(self, party: SimulatedProcess, call: PendingCall, message: Any) -> None:
        if not party.here:
            self._sim.members.asked_in_vain(party, call)
            return
        party.admit(call)
        if (
            self._message_checks is not None
            and (message := self._message_checks.admitted(party, call.incarnation.party, message)) is None
        ):
            return
        on = party.on
        for effect in on(self._sim.now + party.skew_s, call.incarnation.rank, message):
            if type(effect) is Reply:
                self._reply(party, effect.to, effect.message)
            else:
                self.say(party, effect)

    def _answered(self, call: PendingCall, message: Any, shard: int) -> None:
        if self._twice and call.has_answer_of(shard):
            return
        if call.parts is not None:
            call.parts[shard] = message
            call.missing -= 1
            if call.missing:
                return
            message = gather(call.parts, self._world.memory)
        call.value = message
        call.done = True
        incarnation = call.incarnation
        if incarnation.awaited is call:
            self._waited(incarnation, call)
            self._sim.resume(incarnation, message)

    def lost(self, call: PendingCall, name: str) -> None:
        """Party `name` will never answer."""
        incarnation = call.incarnation
        call.error = PeerLost(f"{name} left before it answered worker {incarnation.rank}")
        call.done = True
        if incarnation.awaited is call:
            self._waited(incarnation, call)
            self._sim.resume(incarnation, None, call.error)

    def _waited(self, incarnation: Incarnation, call: PendingCall) -> None:
        incarnation.awaited = None
        if self._sim.trace and incarnation.alive:
            waited = self._sim.now - incarnation.blocked_at
            communicating = min(waited, call.sending_s + call.receiving_s)
            self._sim.note_span(incarnation, "waiting", waited - communicating)
            self._sim.note_span(incarnation, "communicating", communicating)

    # ---- what a party says and hears ---------------------------------------------------------------------
    def _tell(self, incarnation: Incarnation, tell: Tell) -> None:
        self.say(incarnation.party, tell)

    def _answer(self, incarnation: Incarnation, reply: Reply) -> None:
        self._reply(incarnation.party, reply.to, reply.message)

    def _heard(self, party: SimulatedProcess, src: SimulatedProcess, message: Any) -> None:
        if self._message_checks is not None and party.hears:
            message = self._message_checks.admitted(party, src, message)
        if party.hears and message is not None:
            self.say_all(party, party.on(self._sim.now + party.skew_s, src.me, message))

    def say_all(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> None:
        for effect in effects:
            self.say(party, effect)

    def say(self, party: SimulatedProcess, effect: Tell | Reply) -> None:
        """Send what a party's role says."""
        if type(effect) is Reply:
            self._reply(party, effect.to, effect.message)
            return
        parties = self._addressees(effect.to)
        mass = self._sim.invariants and self._sim.invariants.mass
        if mass and type(effect.to) is int:
            mass.said(party, parties[0], effect.message)
        for other, part in zip(parties, self._said(party, self._split(effect.message, parties)), strict=True):
            self._post(party, other, part, self.heard, (other, party, part))

    def _reply(self, party: SimulatedProcess, to: int, message: Any) -> None:
        calls = party.open.get(to)
        if not calls:
            if not party.here:
                return  # it was declared dead, and whoever asked has been told so
            raise ProtocolError(f"{party.name} answers worker {to}, which has asked nothing: {message!r}")
        self.answer(party, calls.pop(0), message)

    def answer(self, party: SimulatedProcess, call: PendingCall, message: Any) -> None:
        if call.among:
            self._end_mean(call, message)
            return
        post = self._post
        at = post(party, call.incarnation.party, message, self.answered, (call, message, party.me))
        if self._sim.trace:
            call.receiving_s = max(call.receiving_s, at - self._sim.now)

    def _end_mean(self, call: PendingCall, message: Any) -> None:
        """All have come; every member has the mean as long after as its carrier takes."""
        nbytes, party = call.nbytes, call.incarnation.party
        if self._coding is not None:
            message = self._coding.handed_out(message)
        call.receiving_s = self._collective_timing.seconds(call.among, nbytes, gathered=call.gathered)
        sent, received = self._collective_timing.moved(call.among, party.me, nbytes, gathered=call.gathered)
        party.sent += sent
        party.received += received
        self._sim.heap.push(self._sim.now + call.receiving_s, self.answered, call, message, 0)

    # ---- the wire ------------------------------------------------------------------------------------------
    def _addressees(self, to: To) -> list[SimulatedProcess]:
        several = self._several.get(to)
        if several is not None:
            return several
        assert isinstance(to, int), f"{self._sim.scheme.name} has no {to}"
        return [self._world.workers[to]]

    def _said(self, src: SimulatedProcess, parts: Sequence[Any]) -> Sequence[Any]:
        """`parts`, or what a worker that lies says in their place."""
        if self._lies is None or src.kind != "worker":
            return parts
        return self._lies.parts(self._sim.now, src.me, parts)

    def _split(self, message: Any, parties: list[SimulatedProcess]) -> list[Any]:
        to_shards = parties is self._world.servers or parties is self._world.means
        return scatter(message, self._world.shards) if to_shards else [message]

    def _post_directly(
        self,
        src: SimulatedProcess,
        dst: SimulatedProcess,
        message: Any,
        act: Callable[..., None],
        args: tuple[Any, ...],
    ) -> float:
        """When it will have arrived."""
        if self._passage is None:
            nbytes = measures[type(message)](message)
        else:
            arriving, nbytes = self._passage(src, dst, message)
            args = tuple([arriving if arg is message else arg for arg in args])
        if nbytes:
            src.sent += nbytes
            dst.received += nbytes
        at = self._network.arrival(self._sim.now, src.nic, dst.nic, nbytes)
        self._heap.put(at, act, args)
        return at
