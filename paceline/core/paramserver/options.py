"""Declares what every scheme with a clock-gated server leaves to the user: how much is exchanged, and what.

A scheme takes these parameters by deriving from one of the classes or from several.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.effects import KEEP, RESET
from paceline.core.message import INCREMENT, STATE, Nature
from paceline.core.paramserver.gated_server import DELTA, GRADIENT, WEIGHTS, Push
from paceline.core.paramserver.gated_worker import RefreshingWorker
from paceline.core.paramserver.staleness import Weighting
from paceline.core.role import Role
from paceline.core.scheme import WHOLE_ROUND, RateShare, Scheme, parameter


@dataclass(frozen=True, kw_only=True)
class Clocked(Scheme):
    """A push is the mean gradient of `steps` mini-batches at the same w."""

    steps: int = parameter(1, "mini-batches a worker makes between two exchanges", low=1)

    def most_samples(self, batch: int, workers: int) -> int:
        """Returns the most samples that one contribution may claim."""
        return batch * self.steps

    def rate_share(self, workers: int) -> RateShare:
        """Returns 1 / n: each contribution is an update of its own, where bsp makes one of n.

        So n updates move the model as far as one of bsp. The rule is that of Gupta et al. 2016 (arXiv 1509.04210), who
        divide the rate by the mean staleness; at about 1 / n of the largest rate without delay SGD becomes unstable.
        """
        if self.trains_locally:
            return WHOLE_ROUND
        return RateShare(1 / workers, f"makes {workers} updates where bsp makes one")

    def worker(self, servers: int) -> type[Role]:
        return RefreshingWorker if self.one_gate and servers > 1 else super().worker(servers)


@dataclass(frozen=True, kw_only=True)
class Weighted(Clocked):
    """Lets the user choose how a late contribution is weighted (`staleness.py`)."""

    weighting: str = parameter(
        "none",
        "weight of a late contribution: none, inverse (1/Y), power:p, exponential:a, cutoff:limit",
        check=Weighting.parse,
    )

    def rate_share(self, workers: int) -> RateShare:
        """Returns 1 / n, less what the weights of late contributions take off already: on average Y is n."""
        whole, rule = super().rate_share(workers), Weighting.parse(self.weighting)
        power = {"inverse": 1.0, "power": rule.parameter}.get(rule.rule, 0.0)
        return WHOLE_ROUND if power >= 1 else RateShare(whole.share ** (1 - power), whole.why)


@dataclass(frozen=True, kw_only=True)
class Delta(Clocked):
    """Lets a worker send either of the first two of SpeeDO's three ways ("GradientOnly" and "FullUpdate"):

        gradient  the mean gradient of `steps` mini-batches at w;          server: w <- update(w, g)
        delta     train `steps` mini-batches from w to x;  d = x - w;              w <- w + d / factor

    With delta the optimizer is the worker's. Its memory (momentum, Adam's moments) is kept across an exchange, as in
    SpeeDO, or reset; that of others never reaches a worker, so there is nothing to average.
    """

    payload: str = parameter(GRADIENT, "what a worker sends: gradient or delta", choices=(GRADIENT, DELTA))
    factor: float = parameter(1.0, "delta: what the server divides it by", low=1e-6)
    memory: str = parameter(
        KEEP, "delta, weights: what an exchange does to the local optimizer's memory", choices=(KEEP, RESET)
    )

    @property
    def trains_locally(self) -> bool:
        """Returns True unless gradients are sent: deltas and weights are made by local steps."""
        return self.payload != GRADIENT

    def nature(self, message: type) -> Nature:
        """Returns STATE for pushed weights."""
        return STATE if message is Push and self.payload == WEIGHTS else super().nature(message)

    def natures(self, servers: int) -> tuple[set[Nature], set[Nature]]:
        up, down = super().natures(servers)
        return (up - {INCREMENT} | {STATE} if self.payload == WEIGHTS else up), down


@dataclass(frozen=True, kw_only=True)
class Payload(Delta):
    """Adds the third way, which is elastic averaging on top of whatever rule a scheme has ("SelfPace"):

    weights   train `steps` mini-batches from x_i, worker i's own;  e = alpha (x_i - w);  w <- w + e;  x_i <- x_i - e

    The server keeps x_i for every worker, so that both sides move by the same e: as many models as there are workers.
    """

    payload: str = parameter(
        GRADIENT, "what a worker sends: gradient, delta or weights", choices=(GRADIENT, DELTA, WEIGHTS)
    )
    alpha: float = parameter(0.5, "weights: how far worker and server move towards each other", low=0.0, high=1.0)
