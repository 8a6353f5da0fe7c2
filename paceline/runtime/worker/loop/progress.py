"""Counts what a worker has done so far, for its reports to the coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paceline.core.coordination.control_messages import Progress
from paceline.core.effects import Data
from paceline.core.role import NO_WORK, WorkCount
from paceline.core.samples.sample_leases import SampleRanges
from paceline.live.node.timing import Times
from paceline.runtime.checkpointing.state_on_request import ServerState
from paceline.runtime.checkpointing.worker_state import WorkerState


@dataclass(frozen=True, slots=True)
class ResumedProgress:
    """Describes the progress before a resumed run: exchanges and mini-batches of a worker, samples of all.

    memories: what the worker remembers of it. position: samples of its share, where it remembers nothing.
    masters: float32 weights of parameters of 16 bits; of_servers: what worker 0 gives the servers before training.
    done: which of the samples are known to be in the model, as pieces of epochs. loaded: it is of `join(state=...)`.
    skipped: nobody has trained some samples of shares that come before the places at which workers go on.
    """

    clock: int = 0
    batches: int = 0
    samples: int = 0
    memories: WorkerState | None = None
    position: int = 0
    masters: Tensor | None = None
    of_servers: ServerState | None = None
    done: Data = ()
    loaded: bool = False
    skipped: bool = False

    @property
    def is_known(self) -> bool:
        """Returns True if it is known of all samples which they are."""
        return SampleRanges(self.done).count == self.samples

    @property
    def draws_on(self) -> bool:
        """Returns True if the worker goes on with the random numbers of its earlier incarnation."""
        return self.memories is not None and bool(self.memories.entry.generators)


class ProgressCounters:
    """Counts what this worker has done; `reported`: samples the coordinator has heard of."""

    def __init__(self) -> None:
        self.steps = self.samples = self.exchanges = self.reported = 0
        self._steps_exchanged = self._samples_exchanged = 0
        self.seconds = 0.0
        self._before = self._samples_before = 0

    def resume(self, steps: int, samples: int) -> None:
        """Begins with steps and samples of an earlier incarnation of the run."""
        self.steps, self.samples = steps, samples
        self._before, self._samples_before = steps, samples
        self._steps_exchanged, self._samples_exchanged = steps, samples
        self.reported = samples  # whoever adds them up knows them already

    @property
    def here(self) -> tuple[int, int]:
        """Returns the steps and samples of this incarnation alone."""
        return self.steps - self._before, self.samples - self._samples_before

    def add(self, samples: int, seconds: float) -> None:
        """Counts a step of so many samples and seconds."""
        self.steps += 1
        self.samples += samples
        self.seconds += seconds

    def handed_over(self) -> None:
        """Notes that an exchange has all that was trained so far, though it is not answered yet."""
        self._steps_exchanged, self._samples_exchanged = self.steps, self.samples

    def lose(self, work: WorkCount) -> None:
        """Takes off work that was handed over, and lost with the worker that held it."""
        self.steps, self.samples = self.steps - work.steps, self.samples - work.samples
        self._steps_exchanged -= work.steps
        self._samples_exchanged -= work.samples

    def progress(
        self,
        times: Times,
        traffic: tuple[int, int],
        shared: tuple[int, int],
        *,
        seconds_at_batch: float,
        seconds_in_loop: float,
        share: int = 0,
        held_alone: WorkCount = NO_WORK,
    ) -> Progress:
        """Returns the report of now. `traffic`: bytes up and down; `shared`: of these, bytes that passed by
        reference. share: samples of this worker's share. held_alone: what it has handed to itself, as one that speaks
        for others."""
        steps, samples = self.steps, self.samples  # read once: the loop goes on meanwhile
        self.reported = samples
        return Progress(
            steps=steps,
            samples=samples,
            exchanges=self.exchanges,
            seconds_computing=self.seconds,
            seconds_waiting=times.waiting,
            seconds_communicating=times.communicating,
            bytes_up=traffic[0],
            bytes_down=traffic[1],
            bytes_shared=sum(shared),
            seconds_hidden=times.hidden,
            seconds_at_batch=seconds_at_batch,
            seconds_in_loop=seconds_in_loop,
            steps_before=self._before,
            samples_before=self._samples_before,
            share=share,
            samples_alone=min(samples, max(0, samples - self._samples_exchanged) + held_alone.samples),
            steps_alone=min(steps, max(0, steps - self._steps_exchanged) + held_alone.steps),
        )
