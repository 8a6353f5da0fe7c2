"""The calls of simulated processes that are not answered yet, where messages may be lost.

    a role asks                        a call is opened for each party that it asks; the answer names its number
    the process leaves                 its questions to the others (`leavers.py`) are calls, too
    an answer arrives                  it counts if its call is open
    what a call waits for is gone      it fails: a role gets PeerLost, a worker that leaves waits for that one no more
    a server is restored from a copy   calls to it are sent again
    the run is stopped                 calls stay open: a worker that ends makes its last exchange
    a process ends                     what it had asked is forgotten

`paceline.core.parties.outgoing_calls` decides, as for live processes: each has one table for all its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost, Undone
from paceline.core.message import size
from paceline.core.parties.outgoing_calls import OutgoingCalls
from paceline.sim.kernel.processes import PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver


class OpenQuestion(Protocol):
    """Is what a simulated process keeps of a call. `to`: the process that it went to."""

    @property
    def to(self) -> SimulatedProcess: ...
    def send_again(self, number: int, to: SimulatedProcess) -> None: ...
    def fail(self, error: Exception) -> None: ...


@dataclass(slots=True)
class RoleCall:
    """One part of a call of a role. `sent`: the number of the message that says it, on the channel to `to`."""

    sim: FaultedDriver
    to: SimulatedProcess
    call: PendingCall
    message: Any
    sent: int = 0

    def send_again(self, number: int, to: SimulatedProcess) -> None:
        """Sends it to `to`, which is in the place of the process that it went to."""
        src, asked = self.call.incarnation.party, self.sim.messaging.asked
        self.sim.streams.posted(src, to)  # a worker that leaves asks it whether it has taken this
        self.sim.streams.send(src, to, size(self.message), asked, (to, self.call, self.message))

    def fail(self, error: Exception) -> None:
        self.sim.heap.push(self.sim.now, self.sim.messaging.lost, self.call, self.to.name)


class CallPart(NamedTuple):
    """Says where a part of a role's call is open: `number` among `calls`, put to `who`."""

    calls: OutgoingCalls[OpenQuestion]
    number: int
    who: Party


class SimulatedCalls:
    """Holds the outgoing calls of all processes of `sim`."""

    def __init__(
        self, sim: FaultedDriver, connection: Callable[[SimulatedProcess, SimulatedProcess], SimulatedProcess]
    ) -> None:
        """`connection(src, to)`: the process that messages of `src` to the present process `to` reach."""
        self._sim, self.connection = sim, connection
        self._of: dict[tuple[str, int], OutgoingCalls[OpenQuestion]] = {}  # by process

    def of(self, party: SimulatedProcess) -> OutgoingCalls[OpenQuestion]:
        """Returns the calls of the process of `party`."""
        if party.process not in self._of:
            retries = self._sim.members.servers is not None
            self._of[party.process] = OutgoingCalls(party.who, retries=retries)
        return self._of[party.process]

    def forget(self, party: SimulatedProcess) -> None:
        """Forgets what a process has asked that is gone for good."""
        self._of.pop(party.process, None)

    # ---- calls of roles ------------------------------------------------------------------------------------
    def opens(self, src: SimulatedProcess, dst: SimulatedProcess, call: PendingCall, message: Any) -> bool:
        """Opens the part of a role's call that `src` puts to `dst`; returns False if it fails at once."""
        calls = self.of(src)
        if call.numbers is None:
            call.numbers = {}
        view = self._sim.streams.server_views.get(src.process, 0)
        question = RoleCall(self._sim, dst, call, message)
        try:
            number = calls.open(dst.who, question, view)
        except Undone as error:
            question.fail(error)
            return False
        call.numbers[dst.me] = CallPart(calls, number, dst.who)
        return True

    def those_that_count(self, answered: Callable[[PendingCall, Any, int], None]) -> Callable[..., None]:
        """Returns what takes an answer to a role, and gives it to `answered` unless it comes too late to matter."""

        def takes(call: PendingCall, message: Any, me: int) -> None:
            if call.numbers is None or self._closes(call, me):  # workers carry means past all links
                answered(call, message, me)

        return takes

    def _closes(self, call: PendingCall, me: int) -> bool:
        """Closes the part of a call that party number `me` answers; returns False if that does not matter any more."""
        assert call.numbers is not None
        calls, number, who = call.numbers[me]
        is_asked_by_it = calls is self._of.get(call.incarnation.party.process)  # and not by one that is gone
        return is_asked_by_it and calls.answered(number, who) is not None

    def is_sent(self, call: PendingCall, to: SimulatedProcess, number: int) -> None:
        """Notes that the part of `call` for `to` travels as message `number`, for the first time or again."""
        assert call.numbers is not None
        calls, at, _ = call.numbers[to.me]
        question = calls.find(at)
        assert isinstance(question, RoleCall)
        question.to, question.sent = to, number

    def sent_by(self, party: SimulatedProcess) -> Iterator[tuple[SimulatedProcess, int]]:
        """Yields, for each open call of the role of `party`, whom it was sent to last, and as which message."""
        for question in self.of(party).unanswered:
            if isinstance(question, RoleCall):
                yield question.to, question.sent

    def has_no_answer(self, call: PendingCall, by: SimulatedProcess) -> None:
        """Fails a call that `by` declines."""
        if self._closes(call, by.me):
            self._sim.messaging.lost(call, by.name)

    def is_not_sent(self, call: PendingCall, to: SimulatedProcess) -> None:
        """Fails a call to a process that is known to be lost, unless another one will take its place."""
        calls = self.of(call.incarnation.party)
        if not calls.waits_for(to.who) and self._closes(call, to.me):
            self._sim.heap.push(self._sim.now, self._sim.messaging.lost, call, to.name)

    def is_open(self, call: PendingCall | None) -> bool:
        """Returns True if somebody may still answer a part of `call`, so that its role waits on whatever happens."""
        parts = (call.numbers if call else None) or {}
        return any(calls.find(number) is not None for calls, number, _ in parts.values())

    # ---- what becomes of all open calls of a process -----------------------------------------------------------
    def lost(self, party: SimulatedProcess, gone: SimulatedProcess) -> None:
        """Ends the calls of `party` to that process, which it has no connection to any more."""
        for question in self.of(party).lost(gone.who):
            question.fail(PeerLost(gone.name))

    def worker_ended(self, party: SimulatedProcess, gone: SimulatedProcess) -> None:
        """Ends the calls of `party` to the worker `gone`, unless it knows of a later incarnation of that one."""
        if self._sim.members.worker_of(party, gone.me).incarnation <= gone.incarnation:
            self.lost(party, gone)

    def sends_again(self, party: SimulatedProcess, servers: Collection[Party]) -> None:
        """Sends the open calls of `party` to these servers again, which were restored from copies."""
        for number, who, question in self.of(party).asked_again(servers):
            question.send_again(number, self.connection(party, self._sim.world.servers[who.index]))

    def servers_went_back(self, party: SimulatedProcess, server_view: int) -> None:
        """Ends the calls of `party` to servers, which are in an earlier state now, in that server view."""
        for question in self.of(party).void(server_view):
            question.fail(Undone())
