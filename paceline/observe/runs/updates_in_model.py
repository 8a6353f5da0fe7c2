"""Counts whose samples the updates of a model hold, and takes out those that servers undo.

Servers that go back undo the latest updates, and how many nobody knows beforehand. All updates one by one would be
memory that grows with the run. So the latest are kept one by one, and the older an update is, the more are one block:

    levels[0]    the latest KEPT updates
    levels[1]    KEPT blocks of two updates before them
    levels[n]    KEPT blocks of 2^n updates; where there is no further level, all that are older are one block

Where servers go back into a block, its samples are taken to be spread evenly over its versions. A block is never
longer than 1 / KEPT of the updates after it, but for the oldest one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from paceline.core.trace import Applied

KEPT = 16
"""Blocks of each size, at most."""
LEVELS = 12
"""Sizes of blocks: the latest 65,000 updates are in blocks of at most 2,048."""


@dataclass(slots=True)
class _Block:
    """Holds the samples of each rank in the updates from version `first` to `last`."""

    first: int
    last: int
    samples: dict[int, float]

    def join(self, later: _Block) -> None:
        """Adds the updates that follow this block's."""
        self.last = later.last
        for rank, samples in later.samples.items():
            self.samples[rank] = self.samples.get(rank, 0.0) + samples


class UpdatesInModel:
    """Takes the updates of one server in their order. `samples`: of each rank, those that are in the model."""

    def __init__(self) -> None:
        self.samples: defaultdict[int, float] = defaultdict(float)
        self._levels: list[deque[_Block]] = [deque() for _ in range(LEVELS)]
        self._is_settled = False  # updates of a phase that is over are in the model, and never undone

    def __bool__(self) -> bool:
        """Returns True if an update is in the model."""
        return self._is_settled or self._newest is not None

    def __len__(self) -> int:
        """Returns the blocks that are kept."""
        return sum(map(len, self._levels))

    def add(self, update: Applied) -> None:
        """Adds an update. A version that does not follow begins a phase that counts its own."""
        if (newest := self._newest) is not None and update.version < newest.last:
            self._settle()
        part = update.samples / max(1, len(update.ranks))
        self._levels[0].append(_Block(update.version, update.version, dict.fromkeys(update.ranks, part)))
        for rank in update.ranks:
            self.samples[rank] += part
        self._merge()

    def undo(self, version: int) -> None:
        """Takes out all updates from `version` on."""
        while (block := self._newest) is not None and block.last >= version:
            undone = min(1.0, (block.last - version + 1) / (block.last - block.first + 1))
            for rank, samples in block.samples.items():
                self.samples[rank] -= undone * samples
                block.samples[rank] = samples * (1 - undone)
            if undone < 1.0:
                block.last = version - 1
                return
            self._level_of_newest().pop()

    @property
    def _newest(self) -> _Block | None:
        """Returns the latest block; None where none is kept."""
        level = self._level_of_newest()
        return level[-1] if level else None

    def _level_of_newest(self) -> deque[_Block]:
        """Returns the first level that is not empty."""
        return next((level for level in self._levels if level), self._levels[0])

    def _merge(self) -> None:
        """Makes the two oldest blocks of each level that is too long one of the next level, or of the last one."""
        for n, level in enumerate(self._levels):
            if len(level) <= KEPT:
                return
            oldest = level.popleft()
            oldest.join(level.popleft())
            if n + 1 < LEVELS:
                self._levels[n + 1].append(oldest)
            else:
                level.appendleft(oldest)

    def _settle(self) -> None:
        """Keeps what is in the model for good."""
        self._is_settled = True
        for level in self._levels:
            level.clear()
