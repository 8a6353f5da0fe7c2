"""Keeps which samples a worker was dealt, in the order in which it trains them, for a checkpoint."""

from __future__ import annotations

from collections import deque

EPOCHS_LOGGED = 16
"""A checkpoint has which samples a worker has trained of so many epochs."""
DealtPiece = tuple[int, int, int, int]
"""An epoch, places `start` to `stop`, and the rank of the worker whose share they are of; 0 where there are none."""


class DealtLog:
    """Logs pieces of the last EPOCHS_LOGGED epochs."""

    def __init__(self) -> None:
        self.is_whole = True  # in the order in which they are trained?
        self._pieces: deque[DealtPiece] = deque()
        self._forgotten = 0  # samples of epochs that are not kept

    def add(self, epoch: int, start: int, stop: int, share: int = 0) -> None:
        """Adds a piece behind all others."""
        while self._pieces and self._pieces[0][0] <= epoch - EPOCHS_LOGGED:
            _, first, end, _ = self._pieces.popleft()
            self._forgotten += end - first
        if self._pieces:
            at, first, end, of = self._pieces[-1]
            if (at, end, of) == (epoch, start, share):
                self._pieces.pop()
                start = first
        self._pieces.append((epoch, start, stop, share))

    def first(self, samples: int) -> list[DealtPiece]:
        """Returns the pieces of the first `samples` samples, of the epochs that are kept."""
        left, found = samples - self._forgotten, list[DealtPiece]()
        for epoch, start, stop, share in self._pieces:
            if left <= 0:
                break
            found.append((epoch, start, min(stop, start + left), share))
            left -= stop - start
        return found
