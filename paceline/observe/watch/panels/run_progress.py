"""How far a run is: towards the nearest of its ends, in epochs, and at which learning rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _unknown(_: int) -> float | None:
    """Returns None: nobody knows the learning rate."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Holds what the files of a run say of it beside its trace; 0 stands for what is not known or not set.

    samples, seconds, steps  where the run ends: samples of all workers, seconds, steps of each worker
    epoch_samples            of the training set
    learning_rate            returns the rate after so many samples of all workers, or None
    """

    samples: int = 0
    seconds: float = 0.0
    steps: int = 0
    epoch_samples: int = 0
    learning_rate: Callable[[int], float | None] = _unknown


def progress(facts: RunFacts, *, now: float, samples: int, steps: int, ended: bool) -> dict[str, Any]:
    """Returns what the page shows of it. `steps`: of the worker that has made fewest.

    done     part of the run that is over, from 0 to 1; None where no end is known, as towards a target accuracy
    left_s   seconds that are left if it goes on as until now; None where that is not known
    epoch    passes over the training set; None where nobody knows how long one is
    rate     the learning rate; None where the run does not know it
    """
    ends = ((samples, facts.samples), (now, facts.seconds), (steps, facts.steps))
    parts = [min(1.0, at / end) for at, end in ends if end]
    done = max(parts, default=None)
    left = now * (1 - done) / done if done and not ended else None
    rate = facts.learning_rate(samples)
    return {
        "done": None if done is None else round(done, 4),
        "left_s": None if left is None else round(left, 1),
        "epoch": round(samples / facts.epoch_samples, 2) if facts.epoch_samples else None,
        "rate": None if rate is None else float(f"{rate:.3g}"),
    }
