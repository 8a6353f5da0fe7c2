"""Workers of a simulation that leave: whom they wait for before they say so.

`paceline.core.parties.delivery_confirmation` decides, as for live workers. A live worker asks the others by a message,
and gets the answer behind all that they had sent. Here that is read off the numbers of the channels, every LOOK_AGAIN_S
seconds, so that a question is no message that could be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from paceline.core.coordination.party import Party
from paceline.core.parties.delivery_confirmation import AllTaken, AskTaken, DeliveryConfirmation, TakenAnswer
from paceline.sim.faults.links.lossy_links import LossyLinks, TakenQuestion
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver

LOOK_AGAIN_S = 0.2
"""Seconds between two looks whether the last messages of a worker that leaves have arrived."""


class SimulatedLeavers:
    """Waits for the others in the place of workers that leave. `left` is called with a worker that need not wait."""

    def __init__(self, sim: FaultedDriver, streams: LossyLinks, left: Callable[[SimulatedProcess], None]) -> None:
        self._sim, self._streams, self._left = sim, streams, left
        self._confirmations: dict[tuple[str, int], DeliveryConfirmation] = {}  # of workers, by process
        streams.posted = self._sent

    def _sent(self, src: SimulatedProcess, dst: SimulatedProcess) -> None:
        if src.kind == "worker":
            self._confirmation(src).sent(dst.who)

    def _confirmation(self, party: SimulatedProcess) -> DeliveryConfirmation:
        if party.process not in self._confirmations:
            self._confirmations[party.process] = DeliveryConfirmation(party.who)
        return self._confirmations[party.process]

    def await_taken(self, party: SimulatedProcess) -> None:
        """Calls `left` with `party` once the others have taken what it sent; never if it dies before."""
        if party.hears:
            workers = [other.who for other in self._sim.world.workers]
            self._carry_out(party, self._confirmation(party).begin(workers))

    def _carry_out(self, party: SimulatedProcess, step: AskTaken | AllTaken) -> None:
        match step:
            case AskTaken(whom=whom):
                self._look(party, {who: self._streams.asks_taken(party, str(who)) for who in whom})
            case AllTaken() if self._is_at_rest(party):
                self._left(party)
            case AllTaken():
                self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self.await_taken, party)

    def _is_at_rest(self, party: SimulatedProcess) -> bool:
        """Returns True if nothing is under way that a live worker would not have to wait for.

        What its role told that of the coordinator is before Left on the same connection, and here on another one. What
        its role told itself is handled at once.
        """
        return self._streams.settled(party, ("coordinator",)) and not any(self._streams.unheard(party, party))

    def _look(self, party: SimulatedProcess, asked: dict[Party, list[TakenQuestion]]) -> None:
        """Looks which questions are answered, and again later for the others."""
        if not party.hears:
            return
        step: AskTaken | AllTaken | None = None
        for who, questions in list(asked.items()):
            asked[who] = [question for question in questions if not self._streams.is_answered(question)]
            if not asked[who]:
                del asked[who]
                step = self._confirmation(party).answered(who, TakenAnswer.TAKEN)
        if step:
            self._carry_out(party, step)
        else:
            self._sim.heap.push(self._sim.now + LOOK_AGAIN_S, self._look, party, asked)
