"""What the workers of a run have done, as far as they have told."""

from __future__ import annotations

from paceline.live.protocol import control_messages as control


class ProgressTotals:
    """This adds up progress by rank, over all incarnations of a worker."""

    def __init__(self) -> None:
        self._progress: dict[int, control.Progress] = {}
        self._former: dict[int, control.Progress] = {}  # without the present incarnation, where it is not the first

    @property
    def samples(self) -> int:
        """Returns the samples that all workers together have trained."""
        return sum(progress.samples for progress in self._progress.values())

    def of(self, rank: int) -> int:
        """Samples of worker `rank` in this run."""
        progress = self._progress.get(rank, control.NOTHING)
        return progress.samples - progress.samples_before

    def told(self, rank: int, progress: control.Progress) -> control.Progress:
        """`progress` is that of its present incarnation; returns that of all."""
        if rank in self._former:
            progress = self._former[rank] + progress
        self._progress[rank] = progress
        return progress

    def new_incarnation(self, rank: int) -> control.Progress:
        """What it has done before the incarnation that begins now."""
        former = self._former[rank] = self._progress.get(rank, control.NOTHING)
        return former
