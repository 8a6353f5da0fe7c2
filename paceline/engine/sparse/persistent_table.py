"""`PersistentTable` holds all rows of a table, as a value of which changing some rows costs those rows only.

This is Baker's persistent array ("Shallow binding makes functional arrays fast", SIGPLAN Notices 26(8), 1991): one
buffer holds the newest version; an older one knows which rows were overwritten, what they were, and what came after it:

    version 0  --(rows 3, 7 and what they were)-->  version 1  --(row 3 and what it was)-->  version 2: the buffer

A version that nobody refers to any more takes its own overwritten rows with it. So a server applies a gradient of a
thousand rows to a table of a million in place, and still nothing that was handed out ever changes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from paceline.engine.sparse.rows import Rows, find
from paceline.engine.vectors.flat import Flat


class _TableVersions:
    """Holds the newest version's numbers, and which rows changed lately.

    `lock` guards both and all links of versions.
    """

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer
        self.lock = threading.Lock()
        self._log: deque[tuple[int, Tensor]] = deque()  # (the stamp of a version, the rows in which it is new)
        self._logged = 0  # rows in the log
        self._forgotten = 0  # the log has no changes up to this stamp any more

    def remember(self, stamp: int, rows: Tensor) -> None:
        """Logs the rows in which a version is new.

        Old entries are dropped once naming the rows would cost about as much as the whole table.
        """
        self._log.append((stamp, rows))
        self._logged += len(rows)
        while self._logged > len(self.buffer):
            self._forgotten, oldest = self._log.popleft()
            self._logged -= len(oldest)

    def changed(self, low: int, high: int) -> Tensor | None:
        """Returns the rows in which versions `low` and `high` may differ, rising; None when that is
        not known any more.
        """
        if low < self._forgotten:
            return None
        found = [rows for stamp, rows in self._log if low < stamp <= high]
        return torch.unique(torch.cat(found)) if found else torch.empty(0, dtype=torch.int64)


Mark = tuple[_TableVersions, int]


class PersistentTable:
    """An instance is one version: an immutable table of `height` rows of `width` float32 numbers each, in host memory.

    stamp: counts the versions. Several threads may read and change it at once.
    """

    __slots__ = ("_numbers", "_overwritten", "height", "stamp", "width")

    def __init__(self, numbers: _TableVersions, stamp: int) -> None:
        """Is for this module alone; others use `owning`."""
        self._numbers, self.stamp = numbers, stamp
        self.height, self.width = numbers.buffer.shape
        self._overwritten: tuple[Tensor, Tensor, PersistentTable] | None = None

    @classmethod
    def owning(cls, buffer: Tensor) -> PersistentTable:
        """Takes over the numbers of `buffer`, a matrix on the host that nobody else reads or writes from now on."""
        return cls(_TableVersions(buffer), 0)

    @property
    def nbytes(self) -> int:
        """Returns the bytes of all rows, however few were copied."""
        return 4 * self.height * self.width

    # ---- reading -----------------------------------------------------------------------------------------
    def gather(self, rows: Tensor) -> Tensor:
        """Returns the numbers of `rows`."""
        with self._numbers.lock:
            out = self._numbers.buffer.index_select(0, rows)
            for changed, before in reversed(list(self._since())):
                at, hit = find(changed, rows)
                out[hit] = before[at[hit]]
        return out

    def whole(self) -> Tensor:
        """Returns all numbers: one copy."""
        with self._numbers.lock:
            out = self._numbers.buffer.clone()
            for changed, before in reversed(list(self._since())):
                out.index_copy_(0, changed, before)
        return out

    def _since(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields what was overwritten since this version, oldest first. Call it under the lock.

        Of a row that was overwritten twice the older numbers are this version's; so callers apply the oldest entry
        last.
        """
        version = self
        while version._overwritten is not None:
            rows, before, version = version._overwritten
            yield rows, before

    def copy_into(self, out: Tensor, known: PersistentTable | Rows | None = None) -> None:
        """Writes the table over `out`, which holds `known`: only the rows that changed since, if that can be told."""
        rows = self.changed_since(known.mark) if isinstance(known, PersistentTable) else None
        if rows is None:
            out.copy_(self.whole())
        else:
            out.index_copy_(0, rows.to(out.device), self.gather(rows).to(out.device))

    @property
    def mark(self) -> Mark:
        """Returns a mark by which to ask later what has changed since, without keeping this version."""
        return self._numbers, self.stamp

    def changed_since(self, mark: Mark) -> Tensor | None:
        """Returns the rows in which this version may differ from the marked one, rising; None when all may."""
        numbers, stamp = mark
        if numbers is not self._numbers:
            return None
        with numbers.lock:
            return numbers.changed(*sorted((self.stamp, stamp)))

    # ---- new versions ------------------------------------------------------------------------------------
    def replaced(self, rows: Tensor, values: Tensor) -> PersistentTable:
        """Returns this table with other numbers in `rows` (rising). It costs those rows; a copy where a newer version
        exists.
        """
        if not len(rows):
            return self
        with self._numbers.lock:
            if self._overwritten is None:
                before = self._numbers.buffer.index_select(0, rows)
                self._numbers.buffer.index_copy_(0, rows, values)
                new = PersistentTable(self._numbers, self.stamp + 1)
                self._overwritten = rows, before, new
                self._numbers.remember(new.stamp, rows)
                return new
        return PersistentTable.owning(self.whole()).replaced(rows, values)

    def plus(self, other: Rows, sign: float = 1.0) -> PersistentTable:
        """Returns self + sign other."""
        old = Flat(self.gather(other.rows).view(-1))
        return self.replaced(other.rows, (old + other.values * sign).value().view(-1, self.width))

    def minus(self, other: PersistentTable) -> Rows | None:
        """Returns the difference of two versions, as the rows in which they differ; None when all may."""
        rows = self.changed_since(other.mark)
        if rows is None:
            return None
        difference = Flat((self.gather(rows) - other.gather(rows)).view(-1))
        return Rows(self.height, self.width, rows, difference)
