"""Whom a worker that leaves waits for, so that nobody hears from the coordinator first that it is gone.

    state     input                                    then
    ENTERED   its roles send a message (`sent`)        noted
    ENTERED   it leaves: its last messages are sent    AskTaken: all that it is connected to, and who was sent something
    ASKING    its roles send a message                 noted, also of one that has answered
    any       a call is sent again to the server in    noted: the lost one may have answered; its copy lacks the call
              the place of a lost one (`sent`)
    ASKING    TAKEN or GONE                            noted
    ASKING    VOID                                     noted: this one is asked again
    ASKING    all that were asked have answered        AskTaken: who was sent something since, and the void ones;
                                                       AllTaken where that is nobody

The question travels behind all messages before it, and the answer behind all that the other side had sent. So an answer
says two things: the other party has taken what it was sent before, and what it sent in return has been handled here.
That is why one round is not enough. A worker that had left before sends back what it is sent, and the role of this one
may then pass that on to somebody else.

Nobody waits for the coordinator: it gets Left over the same connection, behind all else.

A worker that is drained asks all once more (`begin`) before its process ends, when they know that it has left. What
they had sent it without knowing has been handled then, and what its role sent back for that has been taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from paceline.core.coordination.party import Party


class TakenAnswer(Enum):
    """Says what came of a question whether a party has taken everything."""

    TAKEN = "taken"  # it has
    GONE = "gone"  # it was lost, or what it was sent is void: there is nothing to take
    VOID = "void"  # the question was dropped, though that party is there


@dataclass(frozen=True, slots=True)
class AskTaken:
    """Asks each of `whom` whether it has taken what it was sent; every answer goes to `answered`."""

    whom: tuple[Party, ...]


@dataclass(frozen=True, slots=True)
class AllTaken:
    """Waits no longer: everybody has taken everything."""


class DeliveryConfirmation:
    """Decides for one worker. Its owner lets one thread in at a time, and none while a role of it is at work."""

    def __init__(self, me: Party) -> None:
        self._me = me
        self._sent: set[Party] = set()  # since they were asked
        self._asked: set[Party] = set()  # and have not answered

    def sent(self, to: Party) -> None:
        """Notes that `to` is sent something of a role: a question, also again, an answer, or what nobody answers."""
        self._sent.add(to)

    def begin(self, connected: Iterable[Party]) -> AskTaken | AllTaken:
        """Returns whom to wait for first.

        connected: others who are to have everything, whatever it was that they were sent, such as parts of a mean.
        """
        self._sent.update(connected)
        return self._next_round()

    def answered(self, who: Party, answer: TakenAnswer) -> AskTaken | AllTaken | None:
        """Returns what follows from the answer of one that was asked; None while others have not answered."""
        self._asked.remove(who)
        if answer is TakenAnswer.VOID:
            self._sent.add(who)
        return None if self._asked else self._next_round()

    def _next_round(self) -> AskTaken | AllTaken:
        self._asked = {who for who in self._sent if who.kind in ("worker", "server") and who != self._me}
        self._sent.clear()
        return AskTaken(tuple(sorted(self._asked))) if self._asked else AllTaken()
