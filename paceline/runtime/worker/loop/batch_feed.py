"""Feeds a worker's loop with mini-batches: for each data set from a stream of its share, its leases, or what it draws.

auto         dynamic, but shares of equal size under schemes in lock-step whose workers all train as much
dynamic      the next samples of one queue for all (`sample_dealer.py`)
queue        the same, each sample settled by the servers (docs/leases.md)
all others   a share each, cut before training (`paceline/engine/data/partition_plan.py`)
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from paceline.config.validation import check_queue
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.samples.batch_limits import own_batches, sum_of_batches
from paceline.engine.data.batches import Batches, MapStyle
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.dealt_batches import DealtBatches
from paceline.engine.data.leased_batches import LeasedBatches
from paceline.engine.data.partition_plan import epoch_order, make_partition, parse_partition
from paceline.engine.forward_samples import number_of
from paceline.runtime.checkpointing.worker_position import PositionLog
from paceline.runtime.worker.loop.batch_sizes import BatchSizes
from paceline.runtime.worker.loop.joined_run import JoinedRun
from paceline.runtime.worker.loop.lease_client import LeaseClient, LeasedPosition, ShareClient, quotas_of
from paceline.runtime.worker.loop.loader import DrawnBatches, LoaderSettings, batches_of
from paceline.runtime.worker.loop.progress import ProgressCounters, ResumedProgress
from paceline.runtime.worker.loop.run_end import RunEnd
from paceline.runtime.worker.loop.sample_counts import Allowance, InRounds
from paceline.runtime.worker.loop.sample_dealer import SampleDealer
from paceline.runtime.worker.loop.sampler_order import SampledPlan, SamplerOrder
from paceline.runtime.worker.loop.shard import ShardBatches, StreamShard, samples_in
from paceline.runtime.worker.schedules.pass_of_all import PassOfAll
from paceline.runtime.worker.steps.loop_checks import LoopGuard
from paceline.runtime.worker.steps.step_timer import Stopwatch

AUTO, DYNAMIC = "auto", "dynamic"
"""Names of partitions: what suits the scheme; samples drawn from one queue as workers get free."""
Stream = Batches | DealtBatches | LeasedBatches


def whole_epochs(epochs: Any) -> int | None:
    """Returns the epochs that a loop asks for, where they are a whole number or None (without end).

    Raises ConfigError for others.
    """
    if epochs is None:
        return None
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        whole = int(epochs)
        if whole == epochs and whole >= 0:
            return whole
    raise ConfigError(f"epochs={epochs!r}: give a whole number, 0 or more, or None to go on until the run ends")


class BatchFeed:
    """Feeds one worker's loop. Streams are kept by data set, so that a later call goes on where the last one ended."""

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
        self._behind, self._skipped = behind, behind.skipped
        self._streams: dict[int, Stream | StreamShard] = {}  # by the id of the data set
        self._shares = run.plan.workers > 1  # can others train what this one leaves of its share?
        self._is_back = self._shares and run.session.late
        self._allowances: dict[int, Allowance | None] = {}  # by the id of the stream
        self._quotas: Allowance | None = None  # of a run that ends after so many epochs
        self._loaders: dict[int, DataLoader[Any]] = {}  # with processes that go on, by the id of the stream
        self._lengths: dict[int, int] = {}  # samples in one pass, by the id of the stream
        self._begins = True  # is the next one the first of a step?
        self._batches = 0  # that the loop was given
        self._adds = False  # was there a gradient before the last one?
        self._held = 0  # batches that the loop was given last, of one iteration each, and has not gone on from
        self._at_hand: dict[int, int] = {}  # by number: samples of the batches since the last step, or before it
        self._items: dict[int, int] = {}  # the same in items of the data set, which may count as several samples
        self._current = set[int]()  # those of them that the loop has not gone on from
        # Returns the samples of those that are in the gradient: a loop may skip some.
        self.trained_among: Callable[[Mapping[int, int], Collection[int]], int] = lambda batches, _: sum(
            batches.values()
        )
        self._share_exchanged = 0  # samples of the share that an exchange has had
        self._has_left = False  # its loop may still ask for batches, and gets none
        self.pass_of = PassOfAll(run.plan.samples, run.plan.epochs)

    @property
    def feeds(self) -> bool:
        """Returns True if what the loop trains comes from here, and not from a loader of its own."""
        return self._held > 0 or not self._begins

    @property
    def holds(self) -> bool:
        """Returns True if the loop is within a pass over batches from here."""
        return self._held > 0

    @property
    def samples(self) -> int:
        """Returns the samples of the mini-batches that the next step is of; 0 if they are not from here."""
        return self._of_step(self._at_hand)

    @property
    def items(self) -> int:
        """Returns the same in items of the data set."""
        return self._of_step(self._items)

    def _of_step(self, counts: Mapping[int, int]) -> int:
        if not self.feeds:
            return 0
        if len(counts) < 2:  # as a rule
            return sum(counts.values())
        return self.trained_among(counts, self._current)

    @property
    def names_samples(self) -> bool:
        """Returns True if contributions name the samples that they are made of, from the first one of the run on."""
        return self._leases.dealer is not None

    @property
    def number(self) -> int:
        """Returns the number of the batch that the loop was given last."""
        return self._batches

    @property
    def position(self) -> int:
        """Returns the samples of its share that this worker has trained; a loader may have drawn more."""
        first = next(iter(self._streams.values()), None)
        if isinstance(first, Batches) and not first.back:
            return first.trained_of[True]
        return first.samples if first is not None else 0

    @property
    def trained_of_share(self) -> int:
        """Returns the samples of its share of the first data set that this worker has trained and exchanged."""
        return self._share_exchanged

    def batches(
        self, data: Dataset | MapStyle, batch_size: int, epochs: int | None, partition: str, *, anew: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields mini-batches of `epochs` more epochs, or until the run is over.

        `anew`: at least one, as long as the run has one.
        """
        stream = self._stream(data, batch_size, epochs, partition, LoaderSettings(), anew=anew)
        part = self.pass_of.begin(self._lengths[id(stream)], batch_size, epochs)
        while not self._end.over:
            batch = self._next(stream, batch_size)
            if batch is None:
                self._guard.end_of_batches()
                self.pass_of.end(self._lengths[id(stream)], epochs)
                return
            if isinstance(stream, Batches):
                stream.at_hand += len(batch[1])
            with self._handed_out(len(batch[1]), len(batch[1]), part):
                yield batch

    def loaded(
        self, data: Any, batch_size: int, epochs: int | None, partition: str, settings: LoaderSettings, anew: bool
    ) -> Iterator[Any]:
        """Yields the same by a DataLoader, which may be ahead of the loop. Raises ConfigError.

        Indices are drawn when the DataLoader wants them; a batch counts when the loop gets it.
        """
        stream = self._stream(data, batch_size, epochs, partition, settings, anew=anew)
        allowance, samples_of = self._allowances[id(stream)], settings.samples_of
        dealer = allowance if isinstance(allowance, SampleDealer) else None
        if samples_of and (self._run.plan.samples or self._run.plan.epochs):
            raise ConfigError(
                "samples_of= beside --samples or --epochs: those count items, and the workers' batches would count "
                "otherwise; leave the flag out and give pace.loader(..., epochs=...)"
            )
        if isinstance(stream, LeasedBatches) and settings.num_workers:
            raise ConfigError(
                f"partition {partition!r} with num_workers={settings.num_workers}: a queue loads nothing ahead"
            )
        part = self.pass_of.begin(self._lengths[id(stream)], batch_size, epochs)
        lengths: deque[int] = deque()  # of the batches that the DataLoader has drawn and not given yet
        draw = functools.partial(self._draw, stream, dealer, batch_size, lengths)
        for batch in self._loader_of(stream, data, settings, draw):
            length = lengths.popleft()
            if dealer:
                dealer.ahead -= length
                self._sizes.use(dealer, batch_size)
            elif allowance is None:
                self._sizes.use(None, batch_size)
            elif self._sizes.next(allowance, batch_size) == 0:
                break
            if settings.num_workers and self._end.over:  # else it was asked when this batch was drawn
                return
            if isinstance(stream, Batches):
                stream.at_hand += length
            with self._handed_out(number_of(samples_of(batch)) if samples_of else length, length, part):
                yield batch
        if dealer:
            self._sizes.spent = dealer.ends_run
        self._guard.end_of_batches()
        self.pass_of.end(self._lengths[id(stream)], epochs)

    def _loader_of(
        self, stream: Stream, data: Any, settings: LoaderSettings, draw: Callable[[], list[int] | None]
    ) -> DataLoader[Any]:
        """Returns a DataLoader of what is drawn; the one of the pass before where its processes go on."""
        loader = self._loaders.get(id(stream))
        if loader is None:
            loader = batches_of(data, settings, draw)
        if settings.persistent_workers:
            self._loaders[id(stream)] = loader
        assert isinstance(loader.batch_sampler, DrawnBatches)
        loader.batch_sampler.draw = draw
        return loader

    def whole_batches(self, samples: int, batch_size: int, partition: str) -> int:
        """Returns how many samples of a pass make whole batches: as many for each worker where each has a share.

        Raises ConfigError if there are none.
        """
        sharers = 1 if self._is_dynamic(partition) else self._run.plan.workers
        limits = self._run.plan.batch_limits if sharers > 1 else ()
        kept = samples - samples % sum_of_batches(batch_size, limits, sharers)
        if not kept:
            raise ConfigError(
                f"drop_last: {samples} samples are no batch of {batch_size} for each of {sharers} workers; give a "
                "smaller batch_size"
            )
        return kept

    def streamed(
        self, shard: StreamShard, batch_size: int | None, epochs: int | None, settings: LoaderSettings
    ) -> Iterator[Any]:
        """Yields batches of the items of a shard, as they come. Raises ConfigError if the scheme says how large batches
        are."""
        if self._sizes.by_scheme is not None:
            raise ConfigError(f"{self._run.recipe.scheme} says how large batches are: pace.shard has no such batches")
        if id(shard) not in self._streams:
            self._streams[id(shard)] = shard
            self._resume(shard, batch_size or 1)
        allowance, own = self._sizes.allowance, batch_size and self._sizes.bounded(batch_size)
        count = settings.samples_of or (samples_in if batch_size is None else None)
        passes, part = whole_epochs(epochs), self.pass_of.begin(0, batch_size, epochs)
        for _ in itertools.count() if passes is None else range(passes):
            batches = 0
            for batch, items in ShardBatches(shard, own, settings):
                batches += 1
                samples = number_of(count(batch)) if count else items
                if self._sizes.next(allowance, batch_size or samples) == 0 or self._end.over:
                    return
                shard.handed_out(items)
                with self._handed_out(samples, items, part):
                    yield batch
            shard.end_pass()
            if not batches:  # nor will there be any in the next pass
                break
        self._guard.end_of_batches()

    @contextlib.contextmanager
    def _handed_out(self, samples: int, items: int, part: float) -> Iterator[None]:
        """Notes that the loop gets a batch of so many, for the same step as the others since the last one, and in the
        end that it goes on from it.

        items: of the data set in it; part: how much one is of a batch of the plain loop.
        It may take them all before it begins with the first, so whether there is a gradient yet says nothing.
        """
        self._guard.batch()
        self._batches += 1
        if self._begins:
            self._at_hand.clear()
            self._items.clear()
        self._adds = not self._begins and self._guard.has_gradient
        number = self._batches
        self._at_hand[number], self._items[number] = samples, items
        self._current.add(number)
        self._begins = False
        self.pass_of.handed_out(items * part)
        self._watch.hand_out()
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._current.discard(number)
            self._watch.rest()

    def stepped(self) -> None:
        """The loop has made a step of what it had. Models that take turns make several of the same batches."""
        self._begins = True
        if self._run.plan.epochs and not self._lengths:
            self._guard.epochs_unknown()
        if self._sizes.all_exchanged:
            self._note_exchanged()

    def trained(self) -> None:
        """A step is made of what the loop has, and not handed over yet."""
        for stream in self._streams.values():
            if isinstance(stream, Batches):
                stream.trained(stream.at_hand)
                stream.at_hand = 0

    def _note_exchanged(self) -> None:
        """Notes that nothing of what was trained would be lost with this worker."""
        first = next(iter(self._streams.values()), None)
        self._share_exchanged = first.trained_of[True] if isinstance(first, Batches) else 0
        role = self._run.session.node.role
        held, alone = role.held_work().samples, role.held_alone().samples
        for allowance in self._allowances.values():
            if isinstance(allowance, SampleDealer):
                allowance.exchanged(held=held, alone=alone)

    def lost(self, samples: int) -> None:
        """Lets the loop have the last `samples` that it trained again: they were lost with the worker that held them.

        Those of a share are not drawn again; by a rule that ends the run others take their place.
        """
        allowance = next(iter(self._allowances.values()), None)
        if allowance is not None:
            allowance.lost(samples)

    def cleared(self, skipped: bool) -> None:
        """Gradients are gone without a step: those of earlier batches, or else of what the loop has, which it may use
        once more; where a gradient scaler has `skipped` a step, those of all batches of that step."""
        if skipped:
            self._guard.skipped()
            self._begins = True
        elif self._adds:
            self._at_hand = {self._batches: self._at_hand[self._batches]}
            self._items = {self._batches: self._items[self._batches]}
        else:
            self._begins = True

    def _draw(
        self, stream: Stream, dealer: SampleDealer | None, batch_size: int, lengths: deque[int]
    ) -> list[int] | None:
        """Returns the indices of a batch, which the loop does not have yet, and notes its length; None if there is no
        further batch."""
        if self._end.over:
            return None
        own = self._sizes.bounded(batch_size)
        size = self._sizes.by_scheme or own
        if dealer is not None:
            size = dealer.size(size, begins=True)
        whole = bool(self._sizes.by_scheme) or size != own
        indices = stream.indices(size, whole=whole) if size else None
        if indices is not None:
            lengths.append(len(indices))
            if dealer is not None:
                dealer.ahead += len(indices)
        return indices

    def leave(self) -> None:
        """Returns samples that this worker has and does not train to the coordinator. It trains no more."""
        self._has_left = True
        for allowance in dict.fromkeys(filter(None, (self._sizes.allowance, *self._allowances.values()))):
            with contextlib.suppress(PeerLost):  # without a coordinator the run ends in any case
                allowance.leave()
        for stream in self._streams.values():
            if isinstance(stream, Batches) and isinstance(stream.others, ShareClient):
                with contextlib.suppress(PeerLost):
                    stream.others.leave(stream.trained_of, stream.epochs)

    def _next(self, stream: Stream, batch_size: int) -> tuple[Tensor, Tensor] | None:
        """Returns the next mini-batch, of the size that may still be trained; None if there is none."""
        size = self._sizes.next(self._allowances[id(stream)], batch_size)
        if size is None:
            return next(stream, None)
        return stream.take(size) if size else None

    def _bounded(self, epochs: int | None, stream: Stream) -> int | None:
        """Returns the epochs of a stream: a rule that ends the run wins over the loop's own, unless it asks for one at
        a time."""
        ends = bool(self._run.plan.samples or self._run.plan.epochs)
        if epochs == 1 or not ends or isinstance(stream, LeasedBatches):
            return epochs
        return None

    # ---- a stream ----------------------------------------------------------------------------------------
    def _stream(
        self,
        data: Dataset | MapStyle,
        batch_size: int,
        epochs: int | None,
        partition: str,
        settings: LoaderSettings,
        *,
        anew: bool,
    ) -> Stream:
        """Returns the stream of a data set, made at its first use."""
        stream = self._streams.get(id(data))
        if stream is None:
            order = None
            if settings.sampler is not None or settings.generator is not None or settings.drop_last:
                order = SamplerOrder(data, settings.sampler, settings.generator, self._run.recipe.seed)
                if settings.drop_last:
                    order.kept = self.whole_batches(len(order), batch_size, partition)
            number = len(self._streams)
            stream = self._streams[id(data)] = self._make_stream(data, batch_size, partition, order)
            self._lengths[id(stream)] = len(data if order is None else order)
            self._resume(stream, batch_size)
            if isinstance(stream, Batches) and self._shares:
                self._share(stream, number, fixed=partition != AUTO)
                self._leases.share = None if number else stream
        assert not isinstance(stream, StreamShard)
        stream.extend(self._bounded(whole_epochs(epochs), stream), anew=anew)
        if isinstance(stream, Batches) and isinstance(stream.others, ShareClient) and not self._has_left:
            stream.others.begin(stream.trained_of, stream.epochs)
        return stream

    def _make_stream(
        self, data: Dataset | MapStyle, batch_size: int, partition: str, order: SamplerOrder | None
    ) -> Stream:
        """Makes the stream of a data set by its partition. Raises ConfigError."""
        run = self._run
        if self._is_dynamic(partition):
            return self._dealt(data, batch_size, order)
        partition = "uniform" if partition == AUTO else partition
        if parse_partition(partition).leased:
            if order is not None:
                raise ConfigError(
                    f"partition {partition!r}: leases have their own order; leave out sampler, generator and drop_last"
                )
            return self._leased(data, batch_size, partition)
        workers, labels = run.plan.workers, data.y.cpu().numpy() if isinstance(data, Dataset) else None
        samples = len(data if order is None else order)
        cutter = make_partition(
            partition,
            samples,
            workers,
            labels,
            run.recipe.seed,
            run.plan.seconds_per_step,
            own_batches(batch_size, run.plan.batch_limits),
        )
        cutter = cutter if order is None else SampledPlan(cutter, order)
        own = self._sizes.bounded(batch_size)
        stream = Batches(data, cutter, run.rank, own, device=run.device)
        self._allowances[id(stream)] = self._bound(samples)
        self._guard.asks_for(own, stream.share_size, samples / workers)
        return stream

    def _bound(self, samples: int) -> Allowance | None:
        """Returns what bounds a worker with a share of a data set of `samples`, in a run that ends by a rule for all.

        Quotas are one for all data sets; the first one says how long an epoch is.
        """
        plan, sizes = self._run.plan, self._sizes
        if not plan.epochs:
            return sizes.allowance
        if sizes.clock.equal_rounds:
            return InRounds(min(filter(None, (max(1, round(plan.epochs * samples)), plan.samples))), sizes.clock)
        if self._quotas is None:
            self._quotas = sizes.allowance = quotas_of(
                self._run.session, self._run.spec.timeout_s, epoch=samples, divided=plan.workers > 1
            )
        return self._quotas

    def _share(self, stream: Batches, number: int, *, fixed: bool) -> None:
        """Lets a stream go on with what others leave of their shares, and others with what this worker leaves.

        fixed: each worker has as many epochs of its share as its loop asks for.
        """
        run = self._run
        sizes = tuple(stream.shares.size(rank) for rank in range(run.plan.workers))
        bounds = [int(run.plan.epochs), run.plan.samples // sum(sizes)]
        stream.back = self._is_back
        stream.others = ShareClient(
            run.session,
            run.rank,
            number,
            sizes,
            epochs_max=min(filter(None, bounds), default=0),
            steps_of_epoch=stream.steps_per_epoch,
            steps=self._steps_if_alike,
            back=self._is_back,
            fixed=fixed,
            skipped=self._skipped,
            watch=self._watch,
            timeout_s=run.spec.timeout_s,
        )

    def _steps_if_alike(self) -> int:
        """Returns the steps of this worker where it may wait for others at its end: in lock-step, one step of each
        batch, and no rule for all that ends the run; else 0."""
        run = self._run
        ruled = run.plan.samples or run.plan.epochs
        alike = not ruled and not self._is_back and len(self._streams) == 1 and self._sizes.clock.equal_rounds
        return self._counts.steps if alike and self._counts.steps == self._batches else 0

    def _is_dynamic(self, partition: str) -> bool:
        """Returns True if workers draw from one queue.

        By default in lock-step all train as much, and a share each keeps the bits the same in every run.
        """
        run = self._run
        if partition != AUTO:
            return partition == DYNAMIC or (partition == "speed" and not run.plan.seconds_per_step)
        alone = run.plan.workers == 1 and not (run.plan.samples or run.plan.epochs)
        return not (alone or run.recipe.make_scheme().equal_rounds)

    def _dealt(self, data: Dataset | MapStyle, batch_size: int, order: SamplerOrder | None) -> DealtBatches:
        """Returns a stream that draws from the coordinator's queue."""
        run = self._run
        samples = len(data if order is None else order)
        dealer = SampleDealer(
            run.session,
            len(self._streams),
            samples,
            run.spec.timeout_s,
            self._behind.samples,
            self._behind.done,
            divided=run.plan.workers > 1,
        )
        dealer.log.is_whole = not run.former_steps  # nobody has kept what its earlier incarnation had
        if not self._streams and self._behind.is_known:  # an account that lacks the first samples is none
            self._leases.dealer = dealer
        drawn = order.of if order else functools.partial(epoch_order, samples, run.recipe.seed)
        own = self._sizes.bounded(batch_size)
        stream = DealtBatches(data, dealer, own, order=drawn, device=run.device)
        self._allowances[id(stream)] = dealer
        return stream

    def _leased(self, data: Dataset | MapStyle, batch_size: int, partition: str) -> LeasedBatches:
        """Returns a stream of leased samples. Raises ConfigError for a second one, or if no server settles them."""
        run = self._run
        recipe = run.recipe
        check_queue(partition, recipe.make_scheme(), run.spec.servers)
        if self._leases.stream is not None:
            raise ConfigError(f"partition {partition!r}: another data set of this loop is one; give this uniform")
        size = parse_partition(partition).lease_size(len(data), run.plan.workers, batch_size)
        lender = LeaseClient(run.session, len(data), size, run.spec.timeout_s)
        own = self._sizes.bounded(batch_size)
        stream = self._leases.stream = LeasedBatches(data, lender, own, seed=recipe.seed, device=run.device)
        self._allowances[id(stream)] = None  # the coordinator counts what has been applied
        return stream

    def _resume(self, stream: Stream | StreamShard, batch_size: int) -> None:
        """Goes on where an earlier incarnation of the run has stopped, which was at the first data set."""
        behind, self._behind = self._behind, ResumedProgress()
        if isinstance(stream, Batches) and self._is_back:  # the coordinator knows what is left of its share
            return
        if isinstance(stream, StreamShard) and not stream.is_new:  # the loop knows better
            return
        if behind.memories is not None:
            entry = behind.memories.entry
            stream.go_on(entry.position)
            self._counts.resume(entry.steps, stream.samples if entry.samples < 0 else entry.samples)
        elif behind.position:
            stream.go_on(behind.position)
            self._positions.corrected(stream.samples)
            if behind.batches and not self._run.former_steps:
                self._counts.resume(behind.batches, stream.samples)
        elif behind.batches:
            if isinstance(stream, StreamShard):
                stream.go_on(behind.batches * self._sizes.bounded(batch_size))
            else:
                stream.skip(behind.batches)
            self._positions.corrected(stream.samples)
            if not self._run.former_steps:  # the coordinator adds up the incarnations of one worker in this run
                self._counts.resume(behind.batches, stream.samples)
