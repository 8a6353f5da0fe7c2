"""Makes what a virtual worker's step gives: real gradients of the real model, or vectors that have a size only.

All workers share one model: a step loads the weights it is asked to work at, as a live worker does, so nothing of
one worker's is left for the next but what its `LocalWork`, its batches and its batch-norm statistics keep for it.

    Ghosts     --timing-only: no numbers, so a cluster of thousands of workers needs no memory
    Training   real numbers, on one CPU; virtual seconds do not depend on how long that takes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from torch import Tensor, nn

from paceline.core.effects import Compute, Computed, Data, Train, Trained
from paceline.core.samples.sample_leases import joined
from paceline.core.vector import Ghost
from paceline.engine.data.batches import BatchStream
from paceline.engine.data.partition_plan import PartitionPlan
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.loss import mean_loss
from paceline.engine.model.mixed_precision import Precision
from paceline.engine.vectors.flat import Flat
from paceline.runtime.simulated.sample_counts import Counted
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.steps.local_work import LocalWork
from paceline.sim import Workload
from paceline.sim.kernel.vectors import CountedGhost


class VirtualWork(Workload, Protocol):
    """Does the work of all workers. `exchanges`: by rank, as a live worker counts them; `spacing`: how far apart."""

    exchanges: list[int]
    spacing: ExchangeSpacing


class ExchangeSpacing:
    """Counts the steps between exchanges. Steps since a worker's last exchange are not between two, so they are not in
    the mean: a short run may end far from the next one.
    """

    def __init__(self, workers: int) -> None:
        self._steps = [0] * workers  # since the last exchange
        self._between, self._exchanges = 0, 0

    def worked(self, rank: int, steps: int, *, exchanged: bool) -> None:
        """Notes `steps` steps of a worker, before which it has `exchanged` or not."""
        if exchanged:
            self._between += self._steps[rank]
            self._exchanges += 1
            self._steps[rank] = 0
        self._steps[rank] += steps

    @property
    def mean(self) -> float | None:
        """Returns the steps of a worker between two exchanges, on average; None before the first exchange."""
        return self._between / self._exchanges if self._exchanges else None


class TrainingEnded(Ghost):
    """The weights after local steps, of which only the length is known.

    Any arithmetic with them gives another vector. So if the scheme asks to train on from this very object, nothing
    was exchanged in between.
    """

    __slots__ = ()

    def _another(self, _other: object) -> Ghost:
        """Returns a vector of the same length: arithmetic has no meaning any more."""
        return Ghost(len(self))

    __add__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __pow__ = _another

    def spliced(self, part: slice, v: Ghost) -> Ghost:
        """Returns another vector, too: `v` has come from elsewhere."""
        return Ghost(len(self))


class MiniBatches(Protocol):
    """Tells the sizes of mini-batches, and which samples they have, without making them."""

    def mini_batch(self, rank: int, size: int | None) -> tuple[int, Data]:
        """Returns the samples in the worker's next mini-batch, `size` where that is given; and which, where they are
        leased."""


class Sizes:
    """Tells the sizes of mini-batches where each worker has a fixed part of the data."""

    def __init__(self, shares: PartitionPlan | None, batch_of: Callable[[int], int]) -> None:
        """Prepares the sizes for these parts; with None every mini-batch is full. `batch_of`: of a worker, by rank."""
        self._shares, self._batch_of = shares, batch_of
        self._left: dict[int, int] = {}

    def mini_batch(self, rank: int, size: int | None) -> tuple[int, Data]:
        """Returns how many samples the next mini-batch has; without data, as nothing is trained.

        The last one of an epoch is smaller where the batch does not divide the share.
        """
        if self._shares is None:
            return size or self._batch_of(rank), ()
        share = self._shares.size(rank)
        left = self._left.get(rank) or share
        taken = size or min(self._batch_of(rank), left)
        self._left[rank] = (left - taken) % max(1, share)  # what an epoch lacks comes from the next one
        return taken, ()


class Ghosts:
    """Does work without numbers: vectors have the sizes they would have, and no model needs memory."""

    def __init__(
        self,
        step_s: float,
        batches: MiniBatches,
        batch_size: int,
        *,
        workers: int,
        memory_length: int,
        counted: Counted,
    ) -> None:
        """Prepares the work.

        step_s         seconds of a mini-batch of `batch_size` on the reference device
        memory_length  numbers of an optimizer's state
        counted        how many samples each worker may train
        """
        self.exchanges, self.spacing = [0] * workers, ExchangeSpacing(workers)
        self._step_s, self._batches, self._batch_size = step_s, batches, batch_size
        self._counted = counted
        self._memory = Ghost(memory_length) if memory_length else None
        self._ended: list[object] = [None] * workers
        self._begun = [False] * workers

    def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
        """Returns a gradient of the model's length and the seconds it takes."""
        samples, data, seconds = self._samples(rank, wanted.steps, wanted.samples, exchanged=True)
        return Computed(wanted.w, samples, seconds, data)

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        """Returns weights after local steps; work at other weights than its own last ones counts as an exchange."""
        exchanged = wanted.x is not self._ended[rank]
        x = self._ended[rank] = (
            wanted.x.copied() if isinstance(wanted.x, CountedGhost) else TrainingEnded(len(wanted.x))
        )
        memory = self._memory if wanted.show_memory else None
        samples, data, seconds = self._samples(rank, wanted.steps, None, exchanged=exchanged)
        return Trained(x, samples, seconds, memory, data)

    def _samples(self, rank: int, steps: int, wanted: int | None, *, exchanged: bool) -> tuple[int, Data, float]:
        """Returns the samples of `steps` mini-batches, or of fewer where no more may be trained; which; and the
        seconds. An exchange before the work counts, unless it is the worker's first."""
        exchanged = self._begun[rank] and exchanged
        self.exchanges[rank] += exchanged
        self._begun[rank] = True
        found: list[tuple[int, Data]] = []
        seconds, size = 0.0, self._counted.size(rank, wanted, begins=True)
        while len(found) < steps and size != 0:
            found.append(self._batches.mini_batch(rank, size))
            samples = found[-1][0]
            self._counted.trained(rank, samples)
            seconds += self._step_s * (samples / self._batch_size)  # a sample takes the same time in every batch
            if len(found) < steps:
                size = self._counted.size(rank, wanted, begins=False)
        self.spacing.worked(rank, len(found), exchanged=exchanged)
        data = joined([piece for _, data in found for piece in data]) if len(found) > 1 else found[0][1]
        return sum([samples for samples, _ in found]), data, seconds


class Training:
    """Does work with numbers, on one model for all workers."""

    def __init__(
        self,
        module: nn.Module,
        recipe: Recipe,
        step_s: float,
        streams: Sequence[BatchStream],
        *,
        batch_size: int,
        buffers: str,
        precision: str,
        counted: Counted,
        samples_seen: Callable[[int], int],
    ) -> None:
        """Prepares the work.

        step_s        seconds of a mini-batch on the reference device
        streams       mini-batches by rank, each without an end
        samples_seen  returns the samples of all workers, as a worker's step knows them
        """
        self.exchanges, self.spacing = [0] * len(streams), ExchangeSpacing(len(streams))
        self._module, self._precision = module, Precision(precision, module, "cpu")
        self.flat, self.buffers = FlatModel(module), Buffers(module, buffers)
        self._step_s, self._batch_size, self._samples_seen = step_s, batch_size, samples_seen
        self._counted = counted
        self._steps = [LocalWork(self.flat, recipe, None) for _ in streams]
        self._streams = streams
        self._samples = [0] * len(streams)  # trained on, by rank
        self.statistics = [self.buffers.snapshot()] * len(streams)

    def _loss_of(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the mean cross-entropy of a mini-batch: x [b, ...], y [b]."""
        return mean_loss(self._module(x), x, y)

    def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
        """Returns the gradient of worker `rank` at the weights it is given."""
        result = self._work(rank, wanted)
        assert isinstance(result, Computed)
        return result

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        """Returns the weights of worker `rank` after local steps."""
        result = self._work(rank, wanted)
        assert isinstance(result, Trained)
        return result

    def _work(self, rank: int, wanted: Compute | Train) -> Computed | Trained:
        """Makes mini-batches until the effect is complete, on the shared model, and keeps this worker's statistics."""
        steps, stream, result = self._steps[rank], self._streams[rank], None
        exchanged = steps.begin(wanted)
        self.exchanges[rank] += exchanged
        wanted_size = steps.samples_wanted
        size = self._counted.size(rank, wanted_size, begins=True)
        self.buffers.load(self.statistics[rank])
        while result is None:
            x, y = next(stream) if size is None else _of_size(stream, size)
            self.flat.zero_grad()
            self._precision.backward(self._loss_of, x, y)
            steps.apply(self._samples_seen(rank))
            self._counted.trained(rank, len(y))
            self.spacing.worked(rank, 1, exchanged=exchanged)
            exchanged = False
            if steps.left > 1:
                size = self._counted.size(rank, wanted_size, begins=False)
            seconds = self._step_s * (len(y) / self._batch_size)
            result = steps.done(len(y), seconds, stream.taken, last=size == 0)
            stream.forget_taken()
            self._samples[rank] += len(y)
        if len(self.buffers):
            self.statistics[rank] = self.buffers.snapshot()
        return result

    def mean_statistics(self) -> Flat:
        """Returns the batch-norm statistics of the model that is evaluated: their mean by samples, or worker 0's."""
        return self.buffers.average(self.statistics, self._samples)


def _of_size(stream: BatchStream, samples: int) -> tuple[Tensor, Tensor]:
    """Returns a mini-batch of that many samples."""
    batch = stream.take(samples)
    assert batch is not None, "the stream of a virtual worker has no end"
    return batch
