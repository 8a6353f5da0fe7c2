"""Combines the batch-norm statistics of all workers, for whoever evaluates or saves the model of all.

while a worker trains    its own statistics
evaluation, checkpoint   what `Buffers.average` makes of those of all workers (the evaluator reads them)
`pace.shared_model()`    the same, in the block; the worker's own are back after it
a worker comes late      the same, as its own to begin with
`pace.close()`           the same, of the last statistics: worker `holder` combines them, and all others read that,
                         since two workers could round it differently
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from paceline.core.coordination import party
from paceline.core.errors import PeerLost, Stopped, Undone
from paceline.core.vector import is_finite
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.vectors.flat import Flat
from paceline.live.control.session import Session
from paceline.live.node.published_state import FINAL_STATISTICS, STATISTICS, PublishedState
from paceline.live.state.responsive_reads import Answering

Read = Callable[[int], PublishedState]
"""Returns the statistics of the worker with this rank, with its samples as their weight. Raises PeerLost."""


def statistics_of(buffers: Buffers, ranks: Iterable[int], read: Read, *, for_newcomer: bool = False) -> Flat | None:
    """Returns what `buffers.policy` makes of the statistics of `ranks`, without workers lost meanwhile; None when all
    are. Those with NaN or infinity are left out, unless all have one. `for_newcomer`: as a worker begins with them
    (`Buffers.average`).
    """
    found: list[tuple[Flat, float]] = []
    for rank in ranks:
        try:
            shown = read(rank)
            found.append((cast(Flat, shown.v), shown.weight))
        except Undone:
            raise
        except PeerLost:
            continue
        if not buffers.exchanged:
            break
    if not found:
        return None
    found = [(v, samples) for v, samples in found if is_finite(v)] or found
    return buffers.average([v for v, _ in found], [samples for _, samples in found], for_newcomer=for_newcomer)


class WorkerStatistics:
    """Publishes the batch-norm statistics of one worker, and loads those of all into its module.

    samples  returns the samples that this worker has trained: the weight of its statistics
    """

    def __init__(self, session: Session, buffers: Buffers, workers: int, samples: Callable[[], int]) -> None:
        self._session, self._node, self._buffers = session, session.node, buffers
        self._workers, self._samples = workers, samples
        self._own: PublishedState | None = None  # while the module has others
        # Others read on a thread of the node: between its look at `_own` and its copy the module must not get others.
        self._lock = threading.Lock()
        self._node.published[STATISTICS] = lambda _slice: self._published()

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Gives the module the statistics of all workers within the context, and its own again after it.

        Once the run is over the others do not answer any more, and the module keeps its own.
        """
        found = None
        if self._buffers.exchanged:
            with contextlib.suppress(Stopped):
                found = self._now()
        if found is None:
            yield
            return
        outer, before = self._own, self._buffers.snapshot()
        self._keep_own()
        self._buffers.load(found)
        try:
            yield
        finally:
            self._buffers.load(before)
            self._own = outer

    def begin_as_newcomer(self) -> None:
        """Loads what the others' statistics are together, as this worker's own; none if nobody answers."""
        if not len(self._buffers):
            return
        others = [rank for rank in self._present() if rank != self._node.me.index]
        found = statistics_of(self._buffers, others, self._responsive(), for_newcomer=True)
        if found is not None:
            self._buffers.load(found)

    def take_final(self, holder: int) -> None:
        """Loads the last statistics of all, when nobody trains any more; `holder` combines them.

        If `holder` is lost meanwhile, the module keeps its own. What this worker publishes stays its own: others may
        still combine it.
        """
        if not len(self._buffers):
            return
        self._keep_own()
        if self._node.me == party.worker(holder):
            final = statistics_of(self._buffers, range(self._workers), self._last_of)
            assert final is not None  # this worker's own are among them
            self._node.published[FINAL_STATISTICS] = lambda _slice: final
            self._buffers.load(final)
            return
        with contextlib.suppress(PeerLost):
            self._session.reach(party.worker(holder))
            self._buffers.load(self._node.read_state(holder, FINAL_STATISTICS))

    def _published(self) -> PublishedState:
        """Returns this worker's own statistics. It may be called on any thread."""
        with self._lock:
            return self._own or self._in_module()

    def _keep_own(self) -> None:
        """Keeps this worker's own statistics for those who read them, before the module gets others."""
        with self._lock:
            self._own = self._own or self._in_module()

    def _in_module(self) -> PublishedState:
        return PublishedState(v=self._buffers.snapshot(), weight=float(self._samples()))

    def _now(self) -> Flat | None:
        """Returns the statistics of all workers that take part and answer."""
        return statistics_of(self._buffers, self._present(), self._responsive())

    def _present(self) -> list[int]:
        """Returns the workers that take part."""
        departed = self._session.departed
        return [rank for rank in range(self._workers) if rank not in departed]

    def _responsive(self) -> Read:
        """Returns what reads the statistics of workers, without those that hang."""
        answering = Answering(self._node)
        return lambda rank: self._read(rank, answering.read_published)

    def _last_of(self, rank: int) -> PublishedState:
        """Returns the statistics of a worker that trains no more. Raises PeerLost for one that is lost."""
        if rank in self._session.lost_ranks:
            raise PeerLost(f"worker {rank} was lost")
        return self._read(rank, self._node.read_published)

    def _read(self, rank: int, read: Callable[[int, str], PublishedState]) -> PublishedState:
        """Returns the statistics of worker `rank`, this one or another, over a connection made where there is none."""
        who = party.worker(rank)
        if who == self._node.me:
            return self._published()
        if not self._session.has(who):
            raise PeerLost(f"{who} has not joined")
        self._session.reach(who)
        return self._node.of_length(rank, read(rank, STATISTICS), len(self._buffers))
