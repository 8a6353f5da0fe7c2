"""Computes how long a step takes on a device, by the models of `paceline.sim.cluster.model.Device`.

seconds = (factor * reference, or the recorded trace) * jitter * (1 + drift * now) + slow disk
          and stretched while another tenant uses the device (`_Tenant`)
"""

from __future__ import annotations

import math
from random import Random

from paceline.sim.cluster.model import Bursts, Device


class Speed:
    """Computes step times of one worker's device. `extra_s`: seconds that a slow disk adds to each step now."""

    def __init__(self, device: Device, reference_s: float, seed: str) -> None:
        """Prepares the model of `device`. `reference_s`: seconds of a step on the reference device; `seed`: of its
        streams."""
        self.extra_s = 0.0
        self._factor = device.seconds / reference_s if device.seconds else device.factor
        self._drift_per_s = device.drift_per_hour / 3600
        self._jitter = device.jitter
        self._trace = tuple(seconds / reference_s for seconds in device.trace)
        # A generator is 2.5 kB: a worker has only those that its device draws from.
        self._rng = Random(f"{seed}/steps") if device.jitter or device.trace else None
        # Each worker begins at a drawn place of the trace. Workers with the same trace would otherwise stall at the
        # same steps.
        self._played = self._rng.randrange(len(device.trace)) if self._rng and device.trace else 0
        self._tenant = _Tenant(device.bursts, Random(f"{seed}/bursts")) if device.bursts else None

    def seconds(self, now: float, reference_s: float, steps: int) -> float:
        """Returns the seconds of `steps` steps that begin at `now`; on the reference device all take `reference_s`."""
        if self._trace:
            seconds = reference_s / steps * self._recorded(steps)
        else:
            seconds = reference_s * self._factor
        if self._jitter:
            seconds *= self._noise(steps)
        seconds = seconds * (1 + self._drift_per_s * now) + self.extra_s * steps
        return self._tenant.stretch(now, seconds) if self._tenant else seconds

    def _recorded(self, steps: int) -> float:
        """Returns the sum of the next `steps` steps of the recorded trace, in units of the reference step."""
        total = 0.0
        for _ in range(steps):
            total += self._trace[self._played]
            self._played = (self._played + 1) % len(self._trace)
        return total

    def _noise(self, steps: int) -> float:
        """Returns the mean of `steps` log-normal factors, each with mean 1."""
        assert self._rng is not None
        mean = -self._jitter * self._jitter / 2
        total = 0.0
        for _ in range(steps):
            total += math.exp(self._rng.gauss(mean, self._jitter))
        return total / steps


class _Tenant:
    """Models bursts of another tenant of the device: active from `begin` to `end`, then again later.

    Gaps and bursts are exponential. It may only be asked about times that do not decrease.
    """

    def __init__(self, bursts: Bursts, rng: Random) -> None:
        self._bursts = bursts
        self._rng = rng
        self._end = 0.0
        self._draw()

    def _draw(self) -> None:
        """Draws the next burst, which begins after the end of the last one."""
        self._begin = self._end + self._rng.expovariate(1 / self._bursts.every_s)
        self._end = self._begin + self._rng.expovariate(1 / self._bursts.for_s)

    def stretch(self, now: float, seconds: float) -> float:
        """Returns how long work of `seconds` takes that begins at `now`, slower by `factor` within bursts."""
        at, left = now, seconds
        while True:
            while self._end <= at:
                self._draw()
            calm = max(0.0, self._begin - at)
            if left <= calm:
                return at + left - now
            at, left = at + calm, left - calm
            done = (self._end - at) / self._bursts.factor
            if left <= done:
                return at + left * self._bursts.factor - now
            at, left = self._end, left - done


def speed_of(device: Device, reference_s: float, seed: str) -> Speed | None:
    """Returns the model of a device, or None if a step takes exactly the seconds of the workload."""
    plain = device.factor == 1 and not device.seconds and not device.trace
    if plain and not device.jitter and not device.drift_per_hour and not device.bursts:
        return None
    return Speed(device, reference_s, seed)
