"""Checks which messages are given to a role, and what their senders are told of that.

`LossyLinks` promises exactly-once, in-order delivery per pair of processes; this oracle counts the numbers again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from paceline.sim.kernel.processes import SimulatedProcess

Process = tuple[str, int]


class Deliveries:
    """Checks that every message arrives once, in order, and from no fenced or earlier incarnation.

    `broken` makes the error of a violation.
    """

    def __init__(self, broken: Callable[[str], AssertionError]) -> None:
        self._broken = broken
        self._last: dict[tuple[Process, Process], int] = {}  # number of the last message between two processes
        self._newest: dict[tuple[str, Process], int] = {}  # by sender: the latest incarnation that was heard
        self._fenced: dict[Process, set[Process]] = defaultdict(set)
        self._have_left: set[Process] = set()
        self._sent_unaware: dict[tuple[Process, Process], int] = {}  # before the one knew that the other has left

    def delivered(self, src: SimulatedProcess, dst: SimulatedProcess, number: int) -> None:
        """Notes that message `number` of `src` is given to a role of `dst`. Raises if a number is skipped or comes
        twice."""
        self.heard(src, dst)
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

    def heard(self, src: SimulatedProcess, dst: SimulatedProcess) -> None:
        """Notes that a role of `dst` hears a message of `src`, which may have been kept for it. Raises if it is
        fenced."""
        if src.process in self._fenced[dst.process]:
            raise self._broken(
                f"{dst.name} takes a message of {src.name} of incarnation {src.incarnation}, which it has fenced"
            )

    def acknowledged(self, src: SimulatedProcess, dst: SimulatedProcess, last: int) -> None:
        """Notes that `src` forgets all messages up to `last`. Raises if `dst` has not taken them: they would be
        lost."""
        taken = self._last.get((src.process, dst.process), 0)
        if last > taken:
            raise self._broken(f"{src.name} was told that {dst.name} took its message {last}; it took {taken}")

    def left(self, src: SimulatedProcess, sent: Iterable[tuple[SimulatedProcess, int]]) -> None:
        """Notes that `src` says that it has left. Raises if somebody has not taken all that it was sent.

        sent: by receiver, the number of the last message of `src` on a channel that was not given up.
        """
        self._have_left.add(src.process)
        for dst, number in sent:
            taken = self._last.get((src.process, dst.process), 0)
            if taken < number and (dst.hears or dst.kind != "worker"):
                raise self._broken(
                    f"{src.name} says that it has left; of its {number} messages {dst.name} took {taken}"
                )

    def knows_of_leave(self, src: SimulatedProcess, dst: SimulatedProcess, number: int) -> None:
        """Notes that the worker `src` has heard that `dst` has left, after message `number` to it.

        Whatever it had sent before may still be on its way, unless it had left itself.
        """
        if src.process not in self._have_left:
            self._sent_unaware[src.process, dst.process] = number

    def ended(
        self, dst: SimulatedProcess, sent: Iterable[tuple[SimulatedProcess, int]], workers: Iterable[SimulatedProcess]
    ) -> None:
        """Notes that the process of `dst`, which was drained, ends. Raises if it has not taken what a worker has sent,
        or cannot know that it has: then it has heard nothing of that one since that one knew.

        sent: by worker, the number of the last message for a role of `dst`. workers: all whose messages count.
        """
        for src, number in sent:
            taken = self._last.get((src.process, dst.process), 0)
            if taken < number and src.process not in self._fenced[dst.process]:
                raise self._broken(f"{dst.name} ends; of {number} messages of {src.name} it took {taken}")
        for src in workers:
            between = src.process, dst.process
            if self._last.get(between, 0) <= self._sent_unaware.get(between, -1):
                raise self._broken(f"{dst.name} ends, and has heard nothing of {src.name} since that one knew")

    def fenced(self, party: SimulatedProcess, dead: SimulatedProcess) -> None:
        """Notes that `party` has fenced this incarnation of `dead`, and must not take anything of it from now on."""
        self._fenced[party.process].add(dead.process)
