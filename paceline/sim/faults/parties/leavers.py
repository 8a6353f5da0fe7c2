"""Workers of a simulation that leave: whom they wait for before they say so.

    a worker leaves                    it asks the others, behind all that it has sent them
    the question arrives               the answer goes, behind all that was sent in return; that of a server, when its
                                       copy has what was taken
    a connection to one is gone        noticed within LOOK_AGAIN_S: nothing there is to be taken
    a server is replaced by its copy   the question is sent again, to the one that is there now
    servers went back                  what they were sent is void, and so is the question
    it is told to stop                 all questions are void, and put again
    it was drained, and may exit       it asks all once more, then its process ends

`paceline.core.parties.delivery_confirmation` decides, as for live workers, and `outgoing_calls` about the questions as
about all calls of the process (`open_calls.py`). Question and answer are messages: they get lost, come late or twice,
and end with their connection like all others. As in live runs no role sees them, and they belong to no server view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.core.coordination.party import Party
from paceline.core.parties.delivery_confirmation import AllTaken, AskTaken, DeliveryConfirmation, TakenAnswer
from paceline.sim.faults.links.lossy_links import LossyLinks
from paceline.sim.faults.parties.open_calls import SimulatedCalls
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers

LOOK_AGAIN_S = 0.2
"""Seconds between two looks at what comes as no message: a connection that is gone, what a role told itself."""


class Leaver:
    """Holds what one worker that leaves has asked. `party`: its process. `then`: what follows on all answers."""

    def __init__(self, party: SimulatedProcess, then: Callable[[SimulatedProcess], None]) -> None:
        self.party, self.then = party, then
        self.confirmation = DeliveryConfirmation(party.who)
        self.waits = False


@dataclass(slots=True)
class TakenQuestion:
    """One question of a worker that leaves, put to `to`. `ask` sends it; `end` is called when nobody will answer."""

    leaver: Leaver
    to: SimulatedProcess
    ask: Callable[[Leaver, int, SimulatedProcess], None]
    end: Callable[[Leaver, SimulatedProcess, TakenAnswer], None]

    def send_again(self, number: int, to: SimulatedProcess) -> None:
        """Asks `to`, which is in the place of the server that was asked."""
        self.to = to
        self.ask(self.leaver, number, to)

    def fail(self, error: Exception) -> None:
        self.end(self.leaver, self.to, TakenAnswer.GONE)


class SimulatedLeavers:
    """Waits for the others in the place of workers that leave. `left` is called with a worker that need not wait."""

    def __init__(
        self,
        sim: FaultedDriver,
        members: LossyFaultedMembers,
        streams: LossyLinks,
        calls: SimulatedCalls,
        left: Callable[[SimulatedProcess], None],
    ) -> None:
        self._sim, self._members, self._streams, self._calls, self._left = sim, members, streams, calls, left
        self._leavers: dict[tuple[str, int], Leaver] = {}  # all workers, by process
        streams.posted = self._sent

    def _sent(self, src: SimulatedProcess, dst: SimulatedProcess) -> None:
        if src.kind == "worker":
            self._of(src).confirmation.sent(dst.who)

    def _of(self, party: SimulatedProcess) -> Leaver:
        if party.process not in self._leavers:
            self._leavers[party.process] = Leaver(party, self._left)
        return self._leavers[party.process]

    def await_taken(
        self,
        party: SimulatedProcess,
        others: Iterable[Party] = (),
        then: Callable[[SimulatedProcess], None] | None = None,
    ) -> None:
        """Calls `then`, or else `left`, with `party` once the others have taken what it sent; never if it dies before.

        others: parties that are asked though nothing was sent to them.
        """
        workers = [other.who for other in self._sim.world.workers]
        leaver = self._of(party)
        leaver.waits, leaver.then = True, then or self._left
        self._carry_out(leaver, leaver.confirmation.begin([*workers, *others]))
        self._looks_later(leaver)

    def _carry_out(self, leaver: Leaver, step: AskTaken | AllTaken | None) -> None:
        match step:
            case AskTaken(whom=whom):
                for who in whom:
                    dst = self._process(leaver.party, who)
                    calls = self._calls.of(leaver.party)
                    number = calls.open(who, TakenQuestion(leaver, dst, self._ask, self._end), None)
                    if not calls.is_away(who):  # or it goes behind the calls that are sent again
                        self._ask(leaver, number, dst)
            case AllTaken() if self._is_at_rest(leaver.party):
                leaver.waits = False
                leaver.then(leaver.party)
            case _:
                pass  # others have not answered, or it is not at rest: `_looks`

    def _process(self, party: SimulatedProcess, who: Party) -> SimulatedProcess:
        """Returns the process to which `party` has a connection as to `who`."""
        if who.kind == "server":
            return self._calls.connection(party, self._sim.world.servers[who.index])
        return self._members.worker_of(party, who.index)

    def _is_at_rest(self, party: SimulatedProcess) -> bool:
        """Returns True if nothing is under way that a live worker would not have to wait for.

        What its role told that of the coordinator is before Left on the same connection, and here on another one. What
        its role told itself is handled at once.
        """
        return self._streams.settled(party, ("coordinator",)) and not any(self._streams.unheard(party, party))

    # ---- question and answer -------------------------------------------------------------------------------
    def _ask(self, leaver: Leaver, number: int, dst: SimulatedProcess) -> None:
        self._streams.send(leaver.party, dst, 0, self._is_asked, (dst, leaver.party, number), past_role=True)

    def _is_asked(self, dst: SimulatedProcess, party: SimulatedProcess, number: int) -> None:
        """Answers at `dst` that all is taken which came before the question, once its copy has that."""

        def answers() -> None:
            if dst.kind == "server" and self._sim.invariants:
                self._sim.invariants.answered(dst, party.me)
            self._streams.send(dst, party, 0, self._is_answered, (party, dst, number), past_role=True)

        self._members.after_replicated(dst, answers)

    def _is_answered(self, party: SimulatedProcess, dst: SimulatedProcess, number: int) -> None:
        """Takes an answer; one to a question that is void changes nothing."""
        if self._calls.of(party).answered(number, dst.who) is not None:
            self._end(self._of(party), dst, TakenAnswer.TAKEN)

    def _end(self, leaver: Leaver, dst: SimulatedProcess, answer: TakenAnswer) -> None:
        self._carry_out(leaver, leaver.confirmation.answered(dst.who, answer))

    def _looks_later(self, leaver: Leaver) -> None:
        if leaver.waits:
            self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self._looks, leaver.party)

    def _looks(self, party: SimulatedProcess) -> None:
        """Looks which connections are gone, and whether it is at rest now."""
        leaver = self._of(party)
        if not party.hears or not leaver.waits:
            return
        asked = [one.to for one in self._calls.of(party).unanswered if isinstance(one, TakenQuestion)]
        for dst in asked:
            if self._streams.has_lost(party, dst):
                self._calls.lost(party, dst)
        if not asked:  # it was not at rest
            self._carry_out(leaver, leaver.confirmation.begin(()))
        self._looks_later(leaver)
