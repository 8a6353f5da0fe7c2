"""What a worker has done so far, and how it tells."""

from __future__ import annotations

from paceline.live.control import Progress
from paceline.live.times import Times


class Counts:
    """What this worker has done; `reported`: samples the coordinator has heard of."""

    def __init__(self) -> None:
        self.steps = self.samples = self.exchanges = self.reported = 0
        self.seconds = 0.0

    def add(self, samples: int, seconds: float) -> None:
        self.steps += 1
        self.samples += samples
        self.seconds += seconds

    def progress(self, times: Times, traffic: tuple[int, int], shared: tuple[int, int]) -> Progress:
        """`traffic`: bytes up and down; `shared`: those among them that passed by reference."""
        samples = self.reported = self.samples  # read once: the loop goes on meanwhile
        return Progress(
            steps=self.steps,
            samples=samples,
            exchanges=self.exchanges,
            seconds_computing=self.seconds,
            seconds_waiting=times.waiting,
            seconds_communicating=times.communicating,
            bytes_up=traffic[0],
            bytes_down=traffic[1],
            bytes_shared=sum(shared),
            seconds_hidden=times.hidden,
        )
