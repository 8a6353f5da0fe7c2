"""Counts a worker's batches as batches of the plain loop, which learning-rate schedules are written for.

A pass over N samples in batches of B has ceil(N / B) batches in the plain loop, and in `len(pace.loader(...))`. So a
batch of b samples is b * ceil(N / B) / N of one, whichever part of the pass this worker has.
"""

from __future__ import annotations


class PassOfAll:
    """Describes the passes over data that all workers share, as one of them sees them.

    bounded: do the loop's batches end when all workers together have trained so much? shared: does the loop take
    batches of such data at all? divided: has the loop asked for `pace.shard`? samples: of all workers, in the passes of
    which nothing is left.
    """

    def __init__(self, samples_max: int, epochs_max: float) -> None:
        """The run ends after so many samples or epochs of all workers; 0: by something else."""
        self._samples_max, self._epochs_max = samples_max, epochs_max
        self.bounded = bool(samples_max or epochs_max)
        self.shared = self.divided = False
        self.samples = 0
        self._batches = self._of_plain_loop = 0.0

    def begin(self, samples: int, batch_size: int | None, epochs: int | None) -> float:
        """Begins passes over so many samples, 0 where nobody knows; returns what a sample is of a batch."""
        self.shared = True
        self.bounded = bool(self._samples_max or self._epochs_max) or epochs is not None
        if batch_size is None:
            return 1.0  # its items are batches
        return -(-samples // batch_size) / samples if samples else 1 / batch_size

    def handed_out(self, part: float) -> None:
        """Counts a batch that the loop gets, which is such a part of one of the plain loop."""
        self._batches += 1
        self._of_plain_loop += part

    def end(self, samples: int, epochs: int | None) -> None:
        """Counts what `begin` began, now that nothing of it is left for anybody.

        The others may be at their last batches, and only the coordinator learns when they have trained them.
        """
        limit = self._samples_max or round(self._epochs_max * samples)
        if epochs is None:
            self.samples = limit or self.samples
        else:
            self.samples += epochs * samples
            self.samples = min(self.samples, limit or self.samples)

    @property
    def fullness(self) -> float:
        """Returns how many batches of the plain loop one batch of this worker is, on average."""
        return self._of_plain_loop / self._batches if self._batches else 1.0
