"""Times steps: beforehand, while they are made, and drawn out where a slower worker is emulated."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

from paceline.core.adaptive.repeated_timing import best_and_least, repeated
from paceline.engine.accelerators import wait_for
from paceline.engine.model.trial_pass import unchanged
from paceline.live.adaptive_spin import working_seconds


def measured_step(step: Callable[[], object], module: nn.Module, repeats: int = 3) -> float:
    """Returns the median seconds of `repeats` calls of `step`, after one to warm up.

    `module` and torch's generators are as before afterwards.
    """
    seconds = []
    with unchanged(module):
        for _ in range(repeats + 1):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def measured_update(length: int = 1 << 20, tries: int = 3) -> tuple[float, float]:
    """Returns the bytes of weights per second that this process can update: as measured, and the highest value
    possible.

    It is measured again and again, as others may start up beside it. `length`: float32 numbers that are updated.
    """
    w, g, out = torch.zeros(3, length)

    def update() -> float:
        """Returns the seconds of one plain update."""
        began = time.perf_counter()
        torch.add(w, g, alpha=-0.1, out=out)
        return time.perf_counter() - began

    update()
    best, least = best_and_least(repeated(lambda: min(update() for _ in range(tries))))
    return w.nbytes / best, w.nbytes / least


class Stopwatch:
    """Times the steps of a worker on `device`; none lasts less than is asked for, unless the run is `over`.

    The coordinator reads `seconds_at_batch` through reports: a loop that keeps its mini-batch for too long is stuck.

    A GPU is not waited for after a step that hands nothing over, lest it idle until it is given the next one. The host
    then waits for the end of the step before, so it is one step ahead at most. The seconds of single steps are those of
    the host, and their sum up to a step that hands something over is right.
    """

    def __init__(self, device: torch.device, over: threading.Event) -> None:
        self._device, self._over = device, over
        self._step_before: torch.cuda.Event | None = None
        self._began = self._cpu_began = 0.0
        self.cpu = 0.0
        """Core seconds that this process used for the step that has just ended, before it was drawn out."""
        self._handed: float | None = None
        self._in_loop = False

    def begin(self) -> None:
        """Notes that a step begins."""
        self._began, self._cpu_began = time.monotonic(), working_seconds()
        self._in_loop = True

    def hand_out(self) -> None:
        """Notes that the loop has a mini-batch."""
        self._handed = time.monotonic()

    def rest(self) -> None:
        """Notes that the loop has no mini-batch any more."""
        self._handed = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Leaves the time out in which the loop waits for other workers before its next step."""
        self._in_loop = False
        try:
            yield
        finally:
            self.begin()

    @property
    def seconds_at_batch(self) -> float:
        """Returns how long the loop has had its mini-batch without handing over a result; 0 while it has none."""
        handed = self._handed  # read once: the loop goes on meanwhile
        return 0.0 if handed is None else time.monotonic() - handed

    @property
    def seconds_in_loop(self) -> float:
        """Returns how long ago the loop's step began; 0 while `pace.step()` hands one over and waits."""
        return time.monotonic() - self._began if self._in_loop else 0.0

    def passed(self, at_least: float, *, hands_over: bool = True) -> float:
        """Returns the seconds of the step that has just ended, waiting until they are `at_least` so many."""
        self._wait_for_device(ahead=not hands_over and not at_least)
        self.rest()
        self.cpu = working_seconds() - self._cpu_began
        passed = time.monotonic() - self._began
        if passed < at_least:
            self._over.wait(at_least - passed)
            passed = time.monotonic() - self._began
        self._in_loop = False
        return passed

    def _wait_for_device(self, *, ahead: bool) -> None:
        """Waits for the work of this step; where the host may go `ahead` on a GPU, for that of the step before."""
        if not ahead or self._device.type != "cuda":
            wait_for(self._device)
            self._step_before = None
            return
        step_before, self._step_before = self._step_before, torch.cuda.current_stream(self._device).record_event()
        if step_before is not None:
            step_before.synchronize()
