"""What others have asked the roles of one party, and wait for."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from paceline.core.role import Role


class Unanswered:
    """Calls by role and rank, the oldest first. Its owner sees to it that one thread is here at a time."""

    def __init__(self) -> None:
        self._calls: dict[tuple[Role, int], deque[int]] = defaultdict(deque)
        self._away: set[int] = set()

    def take(self, role: Role, rank: int, id: int) -> bool:
        """Is that call of worker `rank` new?"""
        waiting = self._calls[role, rank]
        if id in waiting:
            return False  # asked again, and will be answered
        waiting.append(id)
        return True

    def oldest(self, role: Role, rank: int) -> int | None:
        """Take it out, to answer it; None where there is none."""
        calls = self._calls.get((role, rank))
        return calls.popleft() if calls else None

    def away(self, rank: int) -> bool:
        """Has that worker left, or was it lost? Whatever it still waits for is not answered."""
        return rank in self._away

    def came(self, rank: int) -> None:
        self._away.discard(rank)

    def gone(self, rank: int) -> None:
        """That worker waits for no answer any more."""
        self._away.add(rank)
        for key in [key for key in self._calls if key[1] == rank]:
            del self._calls[key]

    def clear(self) -> Iterator[tuple[int, int]]:
        """Nothing of it will be answered; gives rank and number of each."""
        calls, self._calls = self._calls, defaultdict(deque)
        return ((rank, id) for (_, rank), ids in calls.items() for id in ids)

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))
