"""What a run goes through, and what ends it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(enum.Enum):
    GATHERING = "waiting for everybody to say hello"
    READYING = "waiting for the models"
    PLACING_SERVERS = "placing the servers"
    PLACING_WORKERS = "placing the workers"
    TRAINING = "training"
    FINISHING = "looking at the last model"
    OVER = "over"


@dataclass(slots=True)
class Course:
    """How far a run is: `reason` and `seconds` say why and when the workers were told to stop."""

    phase: Phase = Phase.GATHERING
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Whichever comes first; None is never. `samples` counts over all workers."""

    samples: int | None = None
    seconds: float | None = None
    target_accuracy: float | None = None
