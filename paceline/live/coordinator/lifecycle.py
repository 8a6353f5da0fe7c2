"""What a run goes through, and what ends it.

    phase             waits for                                   then sends                     next phase
    GATHERING         Hello of everybody                          Roster to everybody            READYING
    READYING          Ready of the workers                        Plan to the servers            PLACING_SERVERS
    PLACING_SERVERS   Prepared of the servers                     Plan to all others             PLACING_WORKERS
    PLACING_WORKERS   Prepared of the workers                     Go to everybody                TRAINING
    TRAINING          Left, or the loss, of the last worker       Finish to everybody            FINISHING
    FINISHING         Saved of all that are not lost              Exit to everybody              OVER

Within TRAINING a run is stopping from when `RunState.reason` is set: the workers were told Stop, and nobody is let in.
A failure ends the run from any phase; the supervisor sees to that. `bring_up.py` and `ending.py` have the transitions.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from paceline.core.effects import Data
from paceline.core.fault_tolerance.membership import Membership as Members
from paceline.live.coordinator.decisions import Decisions
from paceline.live.coordinator.roster import ProgressTotals, RunRoster
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control


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
    """How far a run is.

    reason, seconds   why and when the workers were told to stop
    target_reached    they were told because of an evaluation
    holder            the worker that left last, which has the last model if workers have it
    model_on_servers  no worker is needed for the last model
    model             what worker 0 said of its model; every other worker must train the same
    agreed            the plan, once there is one
    """

    phase: RunPhase = RunPhase.GATHERING
    reason: str = ""
    seconds: float = 0.0
    target_reached: bool = False
    holder: Party | None = None
    model_on_servers: bool = False
    model: control.Ready | None = None
    agreed: control.Plan | None = None

    @property
    def training(self) -> bool:
        return self.phase is RunPhase.TRAINING

    @property
    def stopping(self) -> bool:
        """True from when the workers were told to stop."""
        return bool(self.reason)

    @property
    def plan(self) -> control.Plan:
        """Of a run whose workers are ready."""
        assert self.agreed is not None
        return self.agreed

    @property
    def first(self) -> control.Ready:
        """What worker 0 said of its model, once the workers are ready."""
        assert self.model is not None
        return self.model

    @property
    def length(self) -> int:
        """Elements of the model; 0 until it is known."""
        return self.model.length if self.model else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Whichever comes first; None is never. `samples` counts over all workers; `behind`: those of earlier incarnations.

    contribution: samples of one contribution at most; epoch_samples: of the data set. 0 where nobody knows.
    epochs: passes over a data set that only the workers know the length of.
    """

    samples: int | None = None
    epochs: float | None = None
    behind: int = 0
    contribution: int = 0
    epoch_samples: int = 0
    seconds: float | None = None
    target_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class RunSize:
    """How many processes a run has. `not_started`: workers of the highest ranks that may join during training."""

    workers: int
    servers: int
    evaluator: bool = False
    not_started: Collection[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """When a run stops, and when a process counts as lost.

    dead_after_s    silence that counts as death, while training goes on; the evaluator's also later
    stuck_after_s   a worker may be so long at one step, or for STUCK_STEPS of its usual ones, whichever is longer
    min_workers     with fewer left after a loss the run ends
    model_on_servers  no worker is needed for the last model
    done            leased samples that an earlier incarnation of the run has behind it
    """

    stop: StopRule = field(default_factory=StopRule)
    seed: int = 0
    dead_after_s: float = math.inf
    stuck_after_s: float = math.inf
    min_workers: int = 1
    model_on_servers: bool = False
    done: Data = ()


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the parts of the coordinator share. `now` returns seconds since training started."""

    state: RunState
    roster: RunRoster
    totals: ProgressTotals
    members: Members[Party]
    decide: Decisions
    now: Callable[[], float]
