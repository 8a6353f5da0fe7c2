"""A learner's contribution to a fragment of the model that is not merged yet.

Its weight is tokens times tokens a step (Decoupled DiLoCo Team 2026, arXiv 2604.21428).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class PendingFragment:
    """Holds what a learner has sent of the fragment that is due. `delta`: a vector of the fragment's length."""

    delta: Any
    tokens: int
    steps: int
    samples: int

    @property
    def weight(self) -> float:
        return self.tokens * (self.tokens / max(self.steps, 1))

    def add(self, other: PendingFragment) -> None:
        self.delta = self.delta + other.delta
        self.tokens, self.steps = self.tokens + other.tokens, self.steps + other.steps
        self.samples += other.samples
