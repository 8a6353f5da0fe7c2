"""Holds messages that reach a newcomer before its role exists.

    state      input                            then                                   next
    OFF        the roster, late                 nothing yet                            HOLDING
    HOLDING    a message that needs a role      it is kept, in order                   HOLDING
    HOLDING    any other message                it passes                              HOLDING
    HOLDING    its sender is declared lost      what is kept of it is dropped          HOLDING
    HOLDING    release                          all kept messages go to the role       OFF

The role is made of another worker's state, which takes several messages to read. What other workers send meanwhile
would otherwise find no role. They may send it as soon as they have been told that the newcomer joins.

A role that has been told of a loss hears nothing more of the lost process. So what is kept of that process, which the
role would hear later than the loss, is dropped.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from paceline.core.coordination.party import Party

M = TypeVar("M")


class EarlyMessages(Generic[M]):
    """Holds the messages of one process, from its roster until it has its role."""

    def __init__(self) -> None:
        self._held: list[tuple[Party, M]] | None = None  # None while nothing is held

    @property
    def holding(self) -> bool:
        """Returns True from the roster until the role exists, at a newcomer."""
        return self._held is not None

    def begin(self, *, late: bool) -> None:
        """Begins to hold messages, once the roster is here, if this process is `late` (a newcomer)."""
        self._held = [] if late else None

    def hold(self, src: Party, message: M, *, needs_role: bool) -> bool:
        """Keeps a message of `src` that needs the role if that does not exist yet; returns whether it was kept."""
        if self._held is None or not needs_role:
            return False
        self._held.append((src, message))
        return True

    def refuse(self, src: Party) -> None:
        """Drops what was kept of `src`, which was declared lost."""
        if self._held is not None:
            self._held = [(sender, message) for sender, message in self._held if sender != src]

    def release(self) -> list[M]:
        """Returns what was held, in its order, and holds nothing from now on; called when the role exists."""
        held, self._held = self._held or [], None
        return [message for _, message in held]
