"""The lease that a worker trains on: it is used from its beginning on, and the next one follows when it is used up.

    lease [epoch, start, end)     input: so many samples are wanted      given                    left
    none                          the next lease is there                as below                 as below
    none                          there is no other                      nothing                  none
    longer than that                                                     [start, start + wanted)  the rest
    as long, or shorter                                                  all of it                none

What is given never spans two leases: whoever wants more asks again.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.effects import Piece


class LeaseInUse:
    """Cuts the leases of one incarnation of a worker. `rest`: what is left of the last one; None if nothing is."""

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest: Piece | None = None

    def take(self, samples: int, ask: Callable[[], Piece | None]) -> Piece | None:
        """Returns the next samples, at most so many; None if there are no more. `ask` returns the next lease."""
        lease = self.rest or ask()
        if lease is None:
            return None
        epoch, start, end = lease
        stop = min(end, start + samples)
        self.rest = (epoch, stop, end) if stop < end else None
        return epoch, start, stop
