"""Holds messages that reach a newcomer before its role exists.

    state      input                            then                                   next
    OFF        the roster, late                 nothing yet                            HOLDING
    HOLDING    a message that needs a role      it is kept, in order                   HOLDING
    HOLDING    any other message                it passes                              HOLDING
    HOLDING    an incarnation is declared lost  what is kept of it is dropped          HOLDING
    HOLDING    an incarnation leaves            what is kept of it comes first         HOLDING
    HOLDING    servers go back                  what is kept of servers is dropped     HOLDING
    HOLDING    release, of those that left      those messages go to the role          HOLDING
    HOLDING    release, something is kept       all of it goes to the role             HOLDING
    HOLDING    release, nothing is kept         nothing more                           OFF

The role is made of another worker's state, which takes several messages to read. What other workers send meanwhile
would otherwise find no role. They may send it as soon as they have been told that the newcomer joins.

A role that has been told of a loss hears nothing more of the lost process. So what is kept of that process, which the
role would hear later than the loss, is dropped. A worker that leaves has said all before, and was told that it was
taken; the role hears that before it hears of the leave (`orders.py`). What servers have said in an earlier view
belongs to updates that were undone.

The coordinator may tell a newcomer of a loss or a leave after the next incarnation of that worker has sent it
something: both come over connections of their own. So each message is kept with the incarnation of its sender, and what
is kept of the next one stays.

Whoever releases does so until nothing is kept any more. While the role hears what was kept, more may come on another
thread. It must not be read earlier: a codec may send a vector as the difference to the one before.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from paceline.core.coordination.party import Party

M = TypeVar("M")


class EarlyMessages(Generic[M]):
    """Holds the messages of one process, from its roster until it has its role."""

    def __init__(self) -> None:
        # Sender, its incarnation, and message; None while nothing is held.
        self._held: list[tuple[Party, int, M]] | None = None
        self._of_leavers: list[M] = []

    @property
    def holding(self) -> bool:
        """Returns True from the roster until the role exists, at a newcomer."""
        return self._held is not None

    def begin(self, *, late: bool) -> None:
        """Begins to hold messages, once the roster is here, if this process is `late` (a newcomer)."""
        self._held = [] if late else None

    def hold(self, src: Party, incarnation: int, message: M, *, needs_role: bool) -> bool:
        """Keeps a message of that incarnation of `src` if it needs the role and that does not exist yet.

        Returns whether it was kept.
        """
        if self._held is None or not needs_role:
            return False
        self._held.append((src, incarnation, message))
        return True

    def refuse(self, src: Party, incarnation: int) -> None:
        """Drops what was kept of `src` up to that incarnation, which was declared lost."""
        self._take_out(src, incarnation)

    def left(self, src: Party, incarnation: int) -> None:
        """Notes that this incarnation of `src` has left: what was kept of it comes before that, also if its process is
        lost later."""
        self._of_leavers += self._take_out(src, incarnation)

    def _take_out(self, src: Party, incarnation: int) -> list[M]:
        """Removes what is held of `src` up to that incarnation, and returns it in its order."""
        if self._held is None:
            return []
        taken = [entry for entry in self._held if entry[0] == src and entry[1] <= incarnation]
        self._held = [entry for entry in self._held if entry[0] != src or entry[1] > incarnation]
        return [message for _, _, message in taken]

    def servers_went_back(self) -> None:
        """Drops what was kept of servers, which are in an earlier state now."""
        if self._held is not None:
            self._held = [entry for entry in self._held if entry[0].kind != "server"]

    def release_of_leavers(self) -> list[M]:
        """Returns what was held of those that have left since, in its order."""
        held, self._of_leavers = self._of_leavers, []
        return held

    def release(self) -> list[M]:
        """Returns what is held, of those that have left first, each in its order; called when the role exists.

        Once that is nothing, nothing is held from then on. So it is to be called until it returns nothing.
        """
        held = [*self.release_of_leavers(), *(message for _, _, message in self._held or ())]
        self._held = [] if held else None
        return held
