"""Checks that the view counts the changes of who takes part: no two of them have the same number.

The coordinator tells a party of each change in order, and only a join says its view. So from one join that a party
hears of to the next the view must have grown by one for that join, and by one for each worker that was lost or left in
between. That the process of one that had left has ended is no change. A party acknowledges all changes up to a view:
were two of them one, it would acknowledge one that it has not heard of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.sim.kernel.processes import SimulatedProcess


class Views:
    """Counts what each process is told. `broken` makes the error of a violation."""

    def __init__(self, broken: Callable[[str], AssertionError]) -> None:
        self._broken = broken
        self._views: dict[tuple[str, int], int] = {}  # by process: of the last join that it heard of
        self._gone: Counter[tuple[str, int]] = Counter()  # losses and leaves since then
        self._left: dict[tuple[str, int], set[int]] = defaultdict(set)  # who has left, and has not come again

    def told(self, party: SimulatedProcess, message: Any) -> None:
        """Notes what the coordinator tells `party`. Raises if a join has a view that an earlier change has."""
        process = party.process
        if isinstance(message, control.WorkerLeft):
            self._gone[process] += message.rank not in self._left[process]
            if not message.lost:
                self._left[process].add(message.rank)
        if not isinstance(message, control.WorkerJoined):
            return
        self._left[process].discard(message.rank)
        before, gone = self._views.get(process), self._gone.pop(process, 0)
        if before is not None and message.view < before + gone + 1:
            raise self._broken(
                f"{party.name} hears that worker {message.rank} joins in view {message.view}; {gone} are gone "
                f"since another joined in view {before}"
            )
        self._views[process] = message.view
