"""What a shard heard, said and applied, recounted from outside; and what of it is in a state that is kept of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from paceline.core.clocks import Clocks
from paceline.core.scheme import Scheme
from paceline.core.trace import Applied


class Shard:
    """What one life of a shard heard, said and applied. `broken`: makes the error for what must not be."""

    def __init__(self, broken: Callable[[str], AssertionError], scheme: Scheme, workers: int) -> None:
        self._broken, self._scheme, self._workers = broken, scheme, workers
        self._clocks = Clocks(range(workers))
        self._told = dict(self._clocks)  # by the workers' own count, in which what was undone counts, too
        self._at: dict[int, tuple[int, int]] = {}
        self._unheld: set[int] = set()  # whom another shard holds back for this one
        self._new: set[int] = set()  # who counts from whatever it was given
        self._last: dict[int, int] = {}  # clock of each worker's last contribution
        self._heard: dict[int, int] = defaultdict(int)  # contributions of each worker
        self._samples = 0
        self._applied: dict[int, int] = defaultdict(int)
        self._samples_applied = 0
        self._used: dict[int, int] = {}  # clock of each worker's last contribution that is in an update, or was dropped
        self._in_model: dict[int, int] = {}  # and of the last that was not dropped
        self._acknowledged: dict[int, int] = {}  # the last of these that was answered
        self.updates = self.order = 0
        self.dropped: Counter[int] = Counter()

    # ---- of a server that is replaced ----------------------------------------------------------------------
    def as_kept(self) -> Shard:
        """What is known of a state that is kept now: contributions that wait for their round are not in it."""
        kept = Shard(self._broken, self._scheme, self._workers)
        kept._clocks = Clocks(())
        kept._applied, kept._samples_applied, kept.updates = self._applied.copy(), self._samples_applied, self.updates
        kept._used, kept._in_model = self._used.copy(), self._in_model.copy()
        kept.dropped, kept._new = self.dropped.copy(), self._new.copy()
        for rank, clock in self._clocks.items():
            waits = self._heard[rank] > self._applied[rank]
            kept._at[rank] = max(0, clock - waits), max(0, self._told[rank] - waits)
        return kept

    def again(self, order: int, *, gates: bool) -> Shard:
        """Of the server that goes on from there. `gates`: it holds workers back before it has heard of them again."""
        made = self.as_kept()
        made._clocks, made.order = Clocks(range(self._workers)), order
        made._told = dict(made._clocks)
        made._unheld = set() if gates else set(self._at)
        for rank, (clock, told) in self._at.items():
            made._clocks.tick(rank, clock)
            made._told[rank] = told
        made._heard, made._samples, made._last = made._applied.copy(), made._samples_applied, made._used.copy()
        return made

    def goes_on_as(self, other: Shard) -> None:
        """From the copy that was made for it: nothing that it has answered is missing there."""
        for rank, clock in self._acknowledged.items():
            if other._in_model.get(rank, 0) < clock:
                raise self._broken(
                    f"a lost server had answered contribution {clock} of worker {rank}, and its copy does not have it"
                )

    def acknowledges(self, rank: int) -> None:
        if rank in self._in_model:
            self._acknowledged[rank] = self._in_model[rank]

    # ---- while it lasts ------------------------------------------------------------------------------------
    def hear(self, src: int, message: Any) -> None:
        if hasattr(message, "phase"):  # where clocks begin anew
            self._last.pop(src, None)
        clock = getattr(message, "clock", None)
        if clock is None or src not in self._clocks or clock <= self._last.get(src, 0):
            return
        jump = max(1, clock - self._told[src]) if src in self._new else clock - self._last.get(src, 0)
        self._new.discard(src)
        self._unheld.discard(src)
        self._last[src] = clock
        self._heard[src] += 1
        self._samples += message.samples
        self._clocks.tick(src, self._clocks[src] + 1)
        self._told[src] += jump

    def heard_of(self, rank: int) -> int:
        return self._heard.get(rank, 0)

    def last_of(self, rank: int) -> int:
        """The clock of its last contribution."""
        return self._last.get(rank, 0)

    def reply(self, to: int, message: Any) -> None:
        bound = self._scheme.max_ahead()
        if bound is not None and to in self._clocks and to not in self._unheld:
            ahead = self._clocks[to] - self._clocks.low
            if ahead > bound and self._told[to] - min(self._told[rank] for rank in self._clocks) > bound:
                raise self._broken(f"worker {to} may go {ahead} clocks ahead of the slowest, bound {bound}")

    def applied(self, record: Applied) -> None:
        self.updates += record.weight > 0
        for rank in record.ranks:
            self._applied[rank] += 1
            self._used[rank] = self._last.get(rank, 0)
            if record.weight > 0:
                self._in_model[rank] = self._used[rank]
            else:
                self.dropped[rank] += 1
            if self._applied[rank] > self._heard[rank]:
                raise self._broken(
                    f"shard {record.shard} applied {self._applied[rank]} contributions of worker {rank}, "
                    f"which has made {self._heard[rank]}"
                )
        self._samples_applied += record.samples
        if self._samples_applied > self._samples:
            raise self._broken(
                f"shard {record.shard} applied {self._samples_applied} samples; {self._samples} have arrived"
            )

    def all_is_accounted_for(self, number: int, waiting: int) -> None:
        if not self._samples_applied:  # a scheme whose server does not tell
            return
        if self._samples != self._samples_applied + waiting:
            raise self._broken(
                f"at the end shard {number} has heard {self._samples} samples; applied or dropped were "
                f"{self._samples_applied}, and {waiting} wait in open rounds"
            )

    def gone(self, rank: int) -> None:
        if rank in self._clocks:
            self._clocks.drop(rank)

    def came(self, rank: int) -> None:
        for known in (self._last, self._used, self._in_model, self._acknowledged):
            known.pop(rank, None)
        self._new.add(rank)
        if rank not in self._clocks:
            self._told[rank] = min((self._told[other] for other in self._clocks), default=0)
            self._clocks.add(rank)
            if self._heard[rank] > self._applied[rank]:  # its former life is in the open round
                self._clocks.tick(rank, self._clocks[rank] + 1)
                self._told[rank] += 1
