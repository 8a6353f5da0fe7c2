"""Which messages were given to a role, and what their senders were told of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from paceline.sim.kernel.processes import SimulatedProcess

Process = tuple[str, int]


class Deliveries:
    """Every message arrives once, in order, from no fenced or earlier incarnation. `broken` makes the error."""

    def __init__(self, broken: Callable[[str], AssertionError]) -> None:
        self._broken = broken
        self._last: dict[tuple[Process, Process], int] = {}  # number of the last message between two processes
        self._newest: dict[tuple[str, Process], int] = {}  # by sender: the latest incarnation that was heard
        self._fenced: dict[Process, set[Process]] = defaultdict(set)

    def delivered(self, src: SimulatedProcess, dst: SimulatedProcess, number: int) -> None:
        """Message `number` of `src` is given to a role of `dst`."""
        if src.process in self._fenced[dst.process]:
            raise self._broken(
                f"{dst.name} takes a message of {src.name} of incarnation {src.incarnation}, which it has fenced"
            )
        between = src.process, dst.process
        before = self._last.get(between, 0)
        if number != before + 1:
            raise self._broken(f"{dst.name} takes message {number} of {src.name} after message {before}")
        self._last[between] = number
        newest = self._newest.get((src.name, dst.process), 0)
        if src.incarnation < newest:
            raise self._broken(
                f"{dst.name} takes a message of incarnation {src.incarnation} of {src.name} after one of {newest}"
            )
        self._newest[src.name, dst.process] = src.incarnation

    def acknowledged(self, src: SimulatedProcess, dst: SimulatedProcess, last: int) -> None:
        """`src` believes that `dst` has taken everything up to `last`, and forgets it."""
        taken = self._last.get((src.process, dst.process), 0)
        if last > taken:
            raise self._broken(f"{src.name} was told that {dst.name} took its message {last}; it took {taken}")

    def fenced(self, party: SimulatedProcess, dead: SimulatedProcess) -> None:
        """`party` knows that this incarnation of `dead` is over."""
        self._fenced[party.process].add(dead.process)
