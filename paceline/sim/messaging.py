"""Carries messages between simulated parties: calls and answers, tells, means; and how they travel.

    effect        here                                              the worker goes on
    Call          one message to each party, answers are joined     when the last answer has arrived
    Mean          a call to the servers' carriers; or, if workers   when the mean is there, after the time of the
                  carry it, to `world.peers`                        schedule (`CollectiveTiming`)
    Tell, Reply   one message to each party                         at once
    Start         begins a Call or Mean                             at once, with a ticket
    Wait          of a ticket                                       when its result is there

A call to the servers is cut into one message per shard (`scatter`), and the replies are joined again (`gather`):
vectors are concatenated, and of each scalar the smallest counts. So a scheme's worker never sees that the model is
sharded.

A message with hazards passes `LossyLinks`; without, it is one event on the heap, at the time of its arrival.
Which call an answer belongs to is then decided as in live runs (`faults/parties/incoming_calls.py`). Without hazards a
call comes once, so nobody needs its number, and the first that waits is answered.

`Simulation` is the only caller of `arms`; membership and leases use `say_all` and `lost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from paceline.core.collective.mean_server import Averaged, Part
from paceline.core.effects import COORDINATOR, SERVERS, Call, Mean, Reply, Start, Tell, To, Wait
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.message import gather, measures, scatter, size
from paceline.sim.cluster.collective_time import CollectiveTiming
from paceline.sim.core_sharing import CoreSharing
from paceline.sim.faults.lying_worker import Lies
from paceline.sim.kernel.processes import Incarnation, PeerMeanCall, PendingCall, SimulatedProcess
from paceline.sim.message_checks import CheckedDriver, SimulatedMessageChecks

WireCodec = Callable[[SimulatedProcess, SimulatedProcess, Any], tuple[Any, int]]
"""Takes sender, receiver and message. Returns the message as it arrives, decoded, and the bytes of vectors that
travelled."""


class Coding(Protocol):
    """Encodes the means that the workers carry themselves."""

    def handed_in(self, rank: int, part: Part) -> tuple[Part, int, bool]:
        """Returns the part as the others get it, its bytes, and whether everybody gets all parts, not their sum."""

    def handed_out(self, mean: Averaged) -> Averaged: ...


class MessagingDriver(CheckedDriver, Protocol):
    """Shows a simulation to whoever carries its messages.

    lies, message_checks  None where nobody lies, or nothing is checked
    sharing               None if nothing shares cores
    """

    @property
    def lies(self) -> Lies | None: ...
    @property
    def message_checks(self) -> SimulatedMessageChecks | None: ...
    @property
    def sharing(self) -> CoreSharing | None: ...
    def resume(self, incarnation: Incarnation, value: Any = None, error: Exception | None = None) -> None: ...
    def note_span(self, incarnation: Incarnation, activity: str, seconds: float) -> None: ...


BLOCKED = object()
"""Returned by an arm when the result of its effect comes later."""


class Messaging:
    """Carries all messages of `sim`. `arms`: the functions that carry out a worker's effects, by type.

    `mean`: the schedule by which workers carry a `Mean` among themselves. `passage`, `coding`: see `Simulation`.
    """

    def __init__(self, sim: MessagingDriver, mean: str, passage: WireCodec | None, coding: Coding | None) -> None:
        self._sim, self._world = sim, sim.world
        self._collective_timing = CollectiveTiming(sim.network, sim.world.cards, mean)
        self._passage, self._coding = passage, coding
        self._heap, self._network = sim.heap, sim.network
        # What the arrival of a message does. Bound once, for every message needs them.
        self.asked, self.answered, self.heard = self._asked, self._answered, self._heard
        self._replies = self._reply
        if sim.members.calls is not None:
            self.answered = sim.members.calls.those_that_count(self._answered)
            self.asked, self._replies = self._asked_over_links, self._reply_over_links
        self._incoming = sim.members.incoming
        self._post = sim.streams.post if sim.streams else sim.sharing.post if sim.sharing else self._post_directly
        self._lies, self._message_checks = sim.lies, sim.message_checks
        self._several: dict[To, list[SimulatedProcess]] = {SERVERS: self._world.servers}
        self._worker_of = sim.members.worker_of
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
        """Begins a call and blocks its worker. A call to the coordinator alone is no exchange, since no result changes
        hands."""
        if call.to != COORDINATOR:
            incarnation.exchanges = 1
        parties = self._several.get(call.to) or self._addressees(incarnation.party, call.to)
        incarnation.awaited, incarnation.blocked_at = self._ask(incarnation, parties, call.message), self._sim.now
        return BLOCKED

    def _meet(self, incarnation: Incarnation, mean: Mean) -> object:
        """Begins a mean and blocks its worker until all members have contributed."""
        incarnation.exchanges = 1
        incarnation.awaited, incarnation.blocked_at = self._begin_mean(incarnation, mean), self._sim.now
        return BLOCKED

    def _start(self, incarnation: Incarnation, start: Start) -> PendingCall:
        """Begins a call or a mean in the background, and returns its ticket; the worker goes on with its next
        effect."""
        effect = start.effect
        if isinstance(effect, Mean) or effect.to != COORDINATOR:
            incarnation.exchanges = 1
        if isinstance(effect, Mean):
            return self._begin_mean(incarnation, effect)
        return self._ask(incarnation, self._addressees(incarnation.party, effect.to), effect.message)

    def _wait(self, incarnation: Incarnation, wait: Wait) -> Any:
        """Returns the result of a ticket that is done, and otherwise blocks the worker until it is."""
        call = wait.ticket
        assert isinstance(call, PendingCall)
        if not call.done:
            incarnation.awaited, incarnation.blocked_at = call, self._sim.now
            return BLOCKED
        if call.error:
            # The error must be thrown into the generator, which an arm cannot do while the generator waits for its
            # return value. So the worker is resumed by an event of its own, at the same time.
            self._sim.heap.push(self._sim.now, self._sim.resume, incarnation, None, call.error)
            return BLOCKED
        return call.value

    def _begin_mean(self, incarnation: Incarnation, mean: Mean) -> PendingCall:
        """Begins a mean, carried by servers or by workers, as the run has it."""
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
        """Hands a part to the workers' own carrier, which exists once and takes part in no traffic.

        The carrier only waits for all members; `_end_mean` adds the time of the schedule. So the part itself travels
        in no time here. A worker that was declared dead gets a call that never ends: its process waits until it
        learns of the eviction.
        """
        assert self._world.peers is not None
        call = PeerMeanCall(incarnation, part.among)
        if not incarnation.party.here:  # it was declared dead, and does not know
            return call
        if self._coding is None:
            call.nbytes = size(part)
        else:
            part, call.nbytes, call.gathered = self._coding.handed_in(incarnation.rank, part)
        if self._sim.sharing is not None:
            sent, _ = self._collective_timing.moved(call.among, incarnation.rank, call.nbytes, gathered=call.gathered)
            if not self._sim.scheme.trains_locally:
                sent += call.nbytes  # a gradient is cleared; weights of local steps were copied when these ended
            self._sim.sharing.hand_in(incarnation.party, sent, (self._asked, self._world.peers, call, part))
        else:
            self._asked(self._world.peers, call, part)
        return call

    def _ask(self, incarnation: Incarnation, parties: list[SimulatedProcess], message: Any) -> PendingCall:
        """Sends `message`, cut into shards, to `parties`, and returns the call that their answers complete.

        `sending_s` becomes the time until the last part arrives; it splits a wait into communication and idling in
        the trace.
        """
        call = PendingCall(incarnation)
        if len(parties) > 1:
            call.missing, call.parts = len(parties), [None] * len(parties)
            for party, part in zip(parties, self._said(incarnation.party, self._split(message, parties)), strict=True):
                at = self._post(incarnation.party, party, part, self.asked, (party, call, part))
                call.sending_s = max(call.sending_s, at - self._sim.now)
            return call
        party = parties[0]
        if self._lies and party is not incarnation.party:  # what a live worker sends itself passes no check
            (message,) = self._said(incarnation.party, [message])
        at = self._post(incarnation.party, party, message, self.asked, (party, call, message))
        if self._sim.trace:
            call.sending_s = at - self._sim.now
        return call

    def _asked(self, party: SimulatedProcess, call: PendingCall, message: Any) -> None:
        """Delivers a call at `party`, and carries out what its role yields in response.

        The call is opened before the message is checked. So a worker whose message a server rejected waits, and is not
        answered; it is expelled. Workers decline what they reject.
        """
        if not party.here:
            self._sim.members.asked_in_vain(party, call)
            return
        party.admit(call)
        src = call.incarnation.party
        if self._message_checks is not None and (message := self._admitted(party, src, message, call)) is None:
            return
        on = party.on
        try:
            for effect in on(self._sim.now + party.skew_s, call.incarnation.rank, message):
                if type(effect) is Reply:
                    self._reply(party, effect.to, effect.message)
                else:
                    self.say(party, effect)
        except Exception as error:
            self._fails_a_role(party, src, message, error, call)

    def _asked_over_links(self, party: SimulatedProcess, call: PendingCall, message: Any) -> None:
        """Does `_asked` where messages may be lost, in the order of a live process.

        A call that came before is dropped, and any other one is checked before it is opened.
        """
        assert self._incoming is not None
        if self._incoming.had(party, call):
            return
        src = call.incarnation.party
        if self._message_checks is not None and (message := self._admitted(party, src, message, call)) is None:
            return
        if self._incoming.takes(party, call):
            try:
                self.say_all(party, party.on(self._sim.now + party.skew_s, call.incarnation.rank, message))
            except Exception as error:
                self._fails_a_role(party, src, message, error, call)

    def _answered(self, call: PendingCall, message: Any, shard: int) -> None:
        """Takes the answer of one shard; the last missing one completes the call and resumes the worker that
        awaits it."""
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
            if self._sim.trace:
                self._waited(incarnation, call)
            incarnation.awaited = None
            self._sim.resume(incarnation, message)

    def lost(self, call: PendingCall, name: str) -> None:
        """Fails `call`, since party `name` will never answer it: the worker gets PeerLost at its `yield`."""
        incarnation = call.incarnation
        call.error = PeerLost(f"{name} left before it answered worker {incarnation.rank}")
        call.done = True
        if incarnation.awaited is call:
            if self._sim.trace:
                self._waited(incarnation, call)
            incarnation.awaited = None
            self._sim.resume(incarnation, None, call.error)

    def _waited(self, incarnation: Incarnation, call: PendingCall) -> None:
        """Writes the wait for `call`, which ends now, to the trace as idle time and time on the wire."""
        if not incarnation.alive:
            return
        # A call that was started earlier may have travelled while the worker computed. So the time on the wire is at
        # most the time that was waited.
        waited = self._sim.now - incarnation.blocked_at
        communicating = min(waited, call.sending_s + call.receiving_s)
        self._sim.note_span(incarnation, "waiting", waited - communicating)
        self._sim.note_span(incarnation, "communicating", communicating)

    # ---- what a party says and hears ---------------------------------------------------------------------
    def _tell(self, incarnation: Incarnation, tell: Tell) -> None:
        self.say(incarnation.party, tell)

    def _answer(self, incarnation: Incarnation, reply: Reply) -> None:
        self._replies(incarnation.party, reply.to, reply.message)

    def _heard(self, party: SimulatedProcess, src: SimulatedProcess, message: Any) -> None:
        """Delivers a Tell at `party`, unless its process is dead or the message is rejected."""
        if not party.hears:
            return
        if self._message_checks is not None and (message := self._admitted(party, src, message)) is None:
            return
        try:
            self.say_all(party, party.on(self._sim.now + party.skew_s, src.me, message))
        except Exception as error:
            self._fails_a_role(party, src, message, error)

    def _admitted(
        self, party: SimulatedProcess, src: SimulatedProcess, message: Any, call: PendingCall | None = None
    ) -> Any:
        """Returns the message as `party` takes it; None where it was dropped, without which its role goes on then."""
        assert self._message_checks is not None
        admitted = self._message_checks.admitted(party, src, message)
        if admitted is None:
            self._goes_on_without(party, src, message, call)
        return admitted

    def _goes_on_without(
        self, party: SimulatedProcess, src: SimulatedProcess, message: Any, call: PendingCall | None = None
    ) -> None:
        """Lets a worker's role go on without a message that was dropped, as live. `call`: where it was one."""
        if party.kind != "worker" or src.kind != "worker":
            return
        if call is not None and self._incoming is not None:
            self._incoming.declines(party, call)
        elif call is not None and call in party.open.get(src.me, ()):
            party.open[src.me].remove(call)
            self._sim.heap.push(self._sim.now, self.lost, call, party.name)
        if self._sim.invariants and self._sim.invariants.mass:
            self._sim.invariants.mass.heard(party, src.me, message)
        self.say_all(party, party.role.on_refused(self._sim.now + party.skew_s, src.me, message))

    def _fails_a_role(
        self,
        party: SimulatedProcess,
        src: SimulatedProcess,
        message: Any,
        error: Exception,
        call: PendingCall | None = None,
    ) -> None:
        """Gives a liar a strike for the exception that the role of `party` raised over its message, as a live party
        does, and lets the role go on. Raises `error` where the sender is honest: then the role is at fault.
        """
        if self._message_checks is None or not self._message_checks.lets_role_fail(party, src, message, error):
            raise error
        self._goes_on_without(party, src, message, call)

    def say_all(self, party: SimulatedProcess, effects: Iterable[Tell | Reply]) -> None:
        """Sends every effect that a role yielded, in order."""
        for effect in effects:
            self.say(party, effect)

    def say(self, party: SimulatedProcess, effect: Tell | Reply) -> None:
        """Sends one Tell or Reply of a role."""
        if type(effect) is Reply:
            self._replies(party, effect.to, effect.message)
            return
        parties = self._addressees(party, effect.to)
        # The oracle of mass notes a share before it is sent, and before a liar may change it.
        mass = self._sim.invariants and self._sim.invariants.mass
        if mass and type(effect.to) is int:
            mass.said(party, parties[0], effect.message)
        for other, part in zip(parties, self._said(party, self._split(effect.message, parties)), strict=True):
            self._post(party, other, part, self.heard, (other, party, part))

    def _reply(self, party: SimulatedProcess, to: int, message: Any) -> None:
        """Answers the oldest open call of worker `to`. Raises ProtocolError if that worker has no open call at
        `party`."""
        calls = party.open.get(to)
        if not calls:
            if not party.here:
                return  # it was declared dead, and whoever asked has been told so
            raise ProtocolError(f"{party.name} answers worker {to}, which has asked nothing: {message!r}")
        self._send_answer(party, calls.pop(0), message)

    def _reply_over_links(self, party: SimulatedProcess, to: int, message: Any) -> None:
        """Does `_reply` where messages may be lost. What workers carry themselves passes no links."""
        assert self._incoming is not None
        if party is self._world.peers:
            self._reply(party, to, message)
        elif (call := self._incoming.of(party).oldest(party, to, message)) is not None:
            self._send_answer(party, call, message)

    def _send_answer(self, party: SimulatedProcess, call: PendingCall, message: Any) -> None:
        if type(call) is PeerMeanCall:
            self._end_mean(call, message)
            return
        at = self._post(party, call.incarnation.party, message, self.answered, (call, message, party.me))
        if self._sim.trace:
            call.receiving_s = max(call.receiving_s, at - self._sim.now)

    def _end_mean(self, call: PeerMeanCall, message: Any) -> None:
        """Gives one member the mean, after the seconds that the schedule of the workers' carrier takes.

        `nbytes` is what one member contributes; `gathered` means that everybody receives the parts of all, not their
        sum.
        """
        nbytes, party = call.nbytes, call.incarnation.party
        if self._coding is not None:
            message = self._coding.handed_out(message)
        call.receiving_s = self._collective_timing.seconds(call.among, nbytes, gathered=call.gathered)
        sent, received = self._collective_timing.moved(call.among, party.me, nbytes, gathered=call.gathered)
        party.sent += sent
        party.received += received
        if self._sim.sharing is not None:
            self._sim.sharing.hand_out(
                party, received, received + nbytes, call.receiving_s, (self.answered, call, message, 0)
            )
        else:
            self._sim.heap.push(self._sim.now + call.receiving_s, self.answered, call, message, 0)

    # ---- the wire ------------------------------------------------------------------------------------------
    def _addressees(self, src: SimulatedProcess, to: To) -> list[SimulatedProcess]:
        """Returns the parties that `to` names at `src`: all servers, the coordinator, or one worker by rank."""
        several = self._several.get(to)
        if several is not None:
            return several
        assert isinstance(to, int), f"{self._sim.scheme.name} has no {to}"
        return [self._worker_of(src, to)]

    def _said(self, src: SimulatedProcess, parts: Sequence[Any]) -> Sequence[Any]:
        """Returns `parts`, or what a worker that lies sends in their place."""
        if self._lies is None or src.kind != "worker":
            return parts
        return self._lies.parts(self._sim.now, src.me, parts)

    def _split(self, message: Any, parties: list[SimulatedProcess]) -> list[Any]:
        """Returns one message for each server, with the vectors cut at the shards' borders; or the message as it is."""
        to_shards = parties is self._world.servers or parties is self._world.means
        return scatter(message, self._world.shards) if to_shards else [message]

    def _post_directly(
        self,
        src: SimulatedProcess,
        dst: SimulatedProcess,
        message: Any,
        act: Callable[..., None],
        args: tuple[Any, Any, Any],
    ) -> float:
        """Sends over links that lose nothing, as one event. Returns the virtual time at which the message arrives, in
        seconds."""
        if self._passage is None:
            nbytes = measures[type(message)](message)
        else:
            arriving, nbytes = self._passage(src, dst, message)
            args = tuple([arriving if arg is message else arg for arg in args])
        if nbytes:
            src.sent += nbytes
            dst.received += nbytes
        at = self._network.arrival(self._sim.now, src.nic, dst.nic, nbytes)
        a, b, c = args
        self._heap.put(at, act, a, b, c)
        return at
