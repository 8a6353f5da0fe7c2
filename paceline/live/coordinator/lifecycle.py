"""What a run goes through, and what ends it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from paceline.live.party import Party


class RunPhase(enum.Enum):
    GATHERING = "waiting for everybody to say hello"
    READYING = "waiting for the models"
    PLACING_SERVERS = "placing the servers"
    PLACING_WORKERS = "placing the workers"
    TRAINING = "training"
    FINISHING = "looking at the last model"
    OVER = "over"


TARGET_REACHED = "target accuracy"
"""Why a run has ended that has reached the accuracy it was to reach."""
WAIT_SECONDS = 120.0
"""What a phase may take, but for training; and a newcomer to get ready. Besides, what the model takes on its way."""
LEAST_BYTES_PER_S = 125_000.0
"""1 Mbit/s: the thinnest link that a run is made for."""
PASSES = 4
"""So often the model, or what is as long as it (a gradient, a vector of the optimizer), passes one link in a phase."""


def moving_seconds(length: int) -> float:
    """What a model of `length` float32 parameters may take besides, over the thinnest link."""
    return PASSES * 4 * length / LEAST_BYTES_PER_S


@dataclass(slots=True)
class RunState:
    """How far a run is: `reason` and `seconds` say why and when the workers were told to stop.

    `holder`: the worker that left last, who has the last model if workers have it. `model_on_servers`: they have not.
    """

    phase: RunPhase = RunPhase.GATHERING
    reason: str = ""
    seconds: float = 0.0
    holder: Party | None = None
    model_on_servers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Whichever comes first; None is never. `samples` counts over all workers; `behind`: those of earlier incarnations.

    epochs: passes over a data set that only the workers know the length of.

    contribution: samples of one contribution at most; epoch_samples: of the data set. 0 where nobody knows.
    """

    samples: int | None = None
    epochs: float | None = None
    behind: int = 0
    contribution: int = 0
    epoch_samples: int = 0
    seconds: float | None = None
    target_accuracy: float | None = None
