"""The calls of workers to simulated processes that are not answered yet, where messages may be lost.

    a call arrives                 dropped if it came before; else opened and given to the role, or declined
    its number                     the one that it has among the calls of its caller (`open_calls.py`)
    the role answers a worker      the oldest call of that worker is answered
    the process leaves             what is open is declined by a message, and what comes later
    it was declared lost           its calls are dropped; it declines what comes until it learns that it is lost

`paceline.core.parties.incoming_calls` decides, as for live processes: each has one table for all its roles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.core.parties.incoming_calls import IncomingCalls
from paceline.sim.kernel.processes import PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers

WHOLE = 0
"""The slice of every call: a simulated server has one."""


class SimulatedIncomingCalls:
    """Holds the incoming calls of all processes of `sim`."""

    def __init__(self, sim: FaultedDriver, members: LossyFaultedMembers) -> None:
        self._sim, self._members = sim, members
        self._of: dict[tuple[str, int], IncomingCalls[SimulatedProcess, PendingCall]] = {}  # by process

    def of(self, party: SimulatedProcess) -> IncomingCalls[SimulatedProcess, PendingCall]:
        """Returns the calls to the process of `party`."""
        calls = self._of.get(party.process)
        if calls is None:
            calls = self._of[party.process] = IncomingCalls(party.who)
        return calls

    def had(self, party: SimulatedProcess, call: PendingCall) -> bool:
        """Returns True for a call that has come to the process of `party` before."""
        return self.of(party).had(call.incarnation.rank, WHOLE, self._number(party, call))

    def takes(self, party: SimulatedProcess, call: PendingCall) -> bool:
        """Opens a call to the role of `party`, or declines it and returns False."""
        if self.of(party).take(party, call.incarnation.rank, WHOLE, self._number(party, call), call):
            return True
        self._decline(party, call)
        return False

    def declines(self, party: SimulatedProcess, call: PendingCall) -> None:
        """Declines a call that was dropped, or that the role of `party` could not handle."""
        self.of(party).withdraw(party, call.incarnation.rank, call)
        self._decline(party, call)

    @staticmethod
    def _number(party: SimulatedProcess, call: PendingCall) -> int:
        assert call.numbers is not None
        number: int = call.numbers[party.me].number
        return number

    def leaves(self, party: SimulatedProcess) -> None:
        """Declines the calls to the process of `party`, which leaves, and all that come later."""
        for _, call in self.of(party).leave():
            self._decline(party, call)

    def _decline(self, party: SimulatedProcess, call: PendingCall) -> None:
        who = call.incarnation.party
        self._sim.streams.send(party, who, 0, self._is_declined, (who, party, call), past_role=True)

    def _is_declined(self, _who: SimulatedProcess, party: SimulatedProcess, call: PendingCall) -> None:
        self._members.calls.has_no_answer(call, party)
