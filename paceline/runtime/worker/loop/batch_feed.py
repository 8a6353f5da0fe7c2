"""Where a worker's mini-batches come from: one stream of its share, or of its leases, for each data set."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from paceline.config.validation import check_queue
from paceline.core.errors import ConfigError
from paceline.engine.data.batches import Batches, MapStyle
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.leased_batches import LeasedBatches
from paceline.engine.data.partition_plan import make_partition, parse_partition
from paceline.runtime.checkpointing.worker_position import PositionLog
from paceline.runtime.worker.loop.batch_sizes import BatchSizes
from paceline.runtime.worker.loop.joined_run import JoinedRun
from paceline.runtime.worker.loop.lease_client import LeaseClient, LeasedPosition
from paceline.runtime.worker.loop.progress import ProgressCounters, ResumedProgress
from paceline.runtime.worker.loop.run_end import RunEnd
from paceline.runtime.worker.steps.loop_checks import LoopGuard
from paceline.runtime.worker.steps.step_timer import Stopwatch

Stream = Batches | LeasedBatches


class BatchFeed:
    """Of one worker."""

    def __init__(
        self,
        run: JoinedRun,
        sizes: BatchSizes,
        end: RunEnd,
        *,
        counts: ProgressCounters,
        guard: LoopGuard,
        watch: Stopwatch,
        positions: PositionLog,
        leases: LeasedPosition,
        behind: ResumedProgress,
    ) -> None:
        """`behind`: where the first data set is taken up again."""
        self._run, self._sizes, self._end, self._counts = run, sizes, end, counts
        self._guard, self._watch = guard, watch
        self._positions, self._leases = positions, leases
        self._behind = behind
        self._streams: dict[int, Stream] = {}
        self.samples_at_hand = 0  # of the mini-batch that the loop has, or had last

    @property
    def position(self) -> int:
        """Samples of its share that are behind this worker."""
        return next((stream.samples for stream in self._streams.values()), 0)

    def batches(
        self, data: Dataset | MapStyle, batch_size: int, epochs: int | None, shares: str
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Mini-batches of so many more epochs, or until the run is over."""
        stream = self._streams.get(id(data))
        if stream is None:
            stream = self._streams[id(data)] = self._make_stream(data, batch_size, shares)
            if isinstance(stream, Batches):
                self._guard.asks_for(batch_size, stream.share_size, len(data) / self._run.plan.workers)
            self._resume(stream)
        stream.epochs = None if epochs is None else stream.epoch + epochs
        self._sizes.own = batch_size
        while not self._end.over:
            batch = self._next(stream)
            if batch is None:
                self._guard.end_of_batches()
                return
            self._guard.batch()
            self.samples_at_hand = len(batch[1])
            self._watch.hand_out()
            try:
                yield batch
            finally:
                self._watch.rest()

    def _next(self, stream: Stream) -> tuple[Tensor, Tensor] | None:
        size = self._sizes.next()
        if size is None:
            return next(stream, None)
        return stream.take(size) if size else None

    def _make_stream(self, data: Dataset | MapStyle, batch_size: int, shares: str) -> Stream:
        run, how = self._run, parse_partition(shares)
        recipe, workers, device = run.recipe, run.plan.workers, run.device
        if not how.leased:
            labels = data.y.cpu().numpy() if isinstance(data, Dataset) else None
            cutter = make_partition(shares, len(data), workers, labels, recipe.seed, run.plan.seconds_per_step)
            return Batches(data, cutter, run.rank, batch_size, device=device)
        check_queue(shares, recipe.make_scheme(), run.spec.servers)
        if self._leases.stream is not None:
            raise ConfigError(f"shares {shares!r}: another data set of this loop is leased; share this one: uniform")
        size = how.lease_size(len(data), workers, batch_size)
        lender = LeaseClient(run.session, len(data), size, run.spec.timeout_s)
        self._leases.stream = LeasedBatches(data, lender, batch_size, seed=recipe.seed, device=device)
        self._sizes.allowance = None  # the coordinator counts what has been applied
        return self._leases.stream

    def _resume(self, stream: Stream) -> None:
        """Goes on where an earlier incarnation of the run has stopped, which was at the first data set."""
        behind, self._behind = self._behind, ResumedProgress()
        if behind.memories is not None:
            stream.go_on(behind.memories.entry.position)
            self._counts.resume(behind.memories.entry.steps, stream.samples)
        elif behind.batches:
            stream.skip(behind.batches)
            self._positions.corrected(stream.samples)
            if not self._run.former_steps:  # the coordinator adds up what lives of one worker did in this run
                self._counts.resume(behind.batches, stream.samples)
