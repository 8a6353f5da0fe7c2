"""Defines the phases of a run, its stop rules, and the state that the parts of the coordinator share.

    phase             waits for                                   then sends                     next phase
    GATHERING         Hello of everybody                          Roster to everybody            READYING
    READYING          Ready of the workers                        Plan to the servers            PLACING_SERVERS
    PLACING_SERVERS   Prepared of the servers                     Plan to all others             PLACING_WORKERS
    PLACING_WORKERS   Prepared of the workers                     Go to everybody                TRAINING
    TRAINING          Left, or the loss, of the last worker       Finish to everybody            FINISHING
    FINISHING         Saved of all that are not lost              Exit to everybody              OVER

Within TRAINING a run is stopping as soon as `RunState.reason` is set: the workers were told Stop, and nobody may join.
A failure ends the run from any phase; the supervisor sees to that. `paceline.core.coordinator.bring_up` and `ending.py`
have the transitions.
Phases only advance. Each but TRAINING has a deadline (`WAIT_SECONDS`, and the time that the model takes on its way).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.loop_messages import SharesLeft
from paceline.core.coordination.party import Party
from paceline.core.coordination.roster import ProgressTotals, RunRoster
from paceline.core.effects import Data
from paceline.core.fault_tolerance.membership import Membership
from paceline.core.samples.shares_kept import KeptShare

if TYPE_CHECKING:  # whoever only reads the phase of a run needs no coordinator
    from paceline.core.coordination.decisions import Decisions


class RunPhase(enum.Enum):
    GATHERING = "waiting for everybody to say hello"
    READYING = "waiting for the models"
    PLACING_SERVERS = "placing the servers"
    PLACING_WORKERS = "placing the workers"
    TRAINING = "training"
    FINISHING = "evaluating and saving the last model"
    OVER = "over"


EPOCHS = "epochs"
"""The reason of a worker that leaves since no samples are left to train."""
TARGET_REACHED = "target accuracy"
"""The reason recorded for a run that ended because it reached its target accuracy."""
WAIT_SECONDS = 120.0
"""The deadline of a phase other than training, and of a newcomer to get ready; `moving_seconds` comes on top."""
LEAST_BYTES_PER_S = 125_000.0
"""1 Mbit/s: the slowest link that deadlines allow for."""
PASSES = 4
"""How often a vector as long as the model (weights, gradient, optimizer state) passes one link in a phase, at most."""


def moving_seconds(length: int) -> float:
    """Returns the seconds to add to a deadline for moving `length` float32 parameters over the slowest link."""
    return PASSES * 4 * length / LEAST_BYTES_PER_S


@dataclass(slots=True)
class RunState:
    """Holds how far a run is, and what it has agreed on.

    reason, seconds   why and when (seconds since training started) the workers were told to stop
    target_reached    they were told because of an evaluation
    holder            the worker that left last, which has the last model if workers have it
    model_on_servers  no worker is needed for the last model
    model             what worker 0 reported of its model; every other worker must train the same
    agreed            the plan, once there is one
    rate_factor       the operator's factor on the learning rate (`operator_orders.py`)
    shared            the last value of each name that a loop has shared with all workers, as JSON
    shares_left       what workers that are gone have trained of shares, once one is
    """

    phase: RunPhase = RunPhase.GATHERING
    reason: str = ""
    seconds: float = 0.0
    target_reached: bool = False
    holder: Party | None = None
    model_on_servers: bool = False
    model: control.Ready | None = None
    agreed: control.Plan | None = None
    rate_factor: float = 1.0
    shared: dict[str, str] = field(default_factory=dict)
    shares_left: SharesLeft | None = None

    @property
    def training(self) -> bool:
        return self.phase is RunPhase.TRAINING

    @property
    def stopping(self) -> bool:
        """Returns True from the moment the workers were told to stop."""
        return bool(self.reason)

    @property
    def plan(self) -> control.Plan:
        """Returns the plan; only valid once the workers are ready."""
        assert self.agreed is not None
        return self.agreed

    @property
    def first(self) -> control.Ready:
        """Returns what worker 0 reported of its model; only valid once the workers are ready."""
        assert self.model is not None
        return self.model

    @property
    def length(self) -> int:
        """Returns the number of parameters of the model; 0 until it is known."""
        return self.model.length if self.model else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Says when a run stops: at whichever limit comes first; None sets no limit.

    samples          trained by all workers together, those before a resume included
    epochs           passes over a data set whose length only the workers know
    behind           samples that were trained before this run was resumed
    contribution     samples of one contribution at most; 0 if unknown
    epoch_samples    samples of the data set; 0 if unknown
    seconds          since training started
    target_accuracy  of the evaluated model, from 0 to 1
    counted          which of the user's rules gave `samples`: samples or epochs. It is the reason of the run's end
    """

    samples: int | None = None
    epochs: float | None = None
    behind: int = 0
    contribution: int = 0
    epoch_samples: int = 0
    seconds: float | None = None
    target_accuracy: float | None = None
    counted: str = EPOCHS

    def end(self, epoch: int) -> int | None:
        """Returns the samples after which the run ends, where an epoch has so many; None without such a rule."""
        ends = [self.samples, max(1, round(self.epochs * epoch)) if self.epochs and epoch else None]
        return min(filter(None, ends), default=None)


@dataclass(frozen=True, slots=True)
class RunSize:
    """Says how many processes a run has. `not_started`: workers of the highest ranks, which may join later."""

    workers: int
    servers: int
    evaluator: bool = False
    not_started: Collection[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnResultRule:
    """Says who is expelled for results of its own that are not finite, where no server sees these.

    strikes      so many among its last 100 expel a worker; 0: nobody is expelled
    workers_min  nobody is expelled where no more than these train
    """

    strikes: int = 0
    workers_min: int = 1


NOBODY_EXPELLED = OwnResultRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """Says when a run stops, and when a process counts as lost.

    dead_after_s      seconds of silence after which a process counts as lost during training; the evaluator also later
    stuck_after_s     seconds that one step may take, or STUCK_STEPS of the worker's usual ones, whichever is longer
    start_after_s     seconds within which a process that is started during training has to say Hello
    min_workers       the run ends when a loss leaves fewer; with 0 it goes on when all have left, too
    model_on_servers  the servers hold the model, so no worker is needed for the last one
    done              leased samples that were finished before this run was resumed
    shares            where it goes on in the shares of workers, and what before that is trained by nobody
    own_results       who is expelled for results that only it sees
    own_loops         workers run a script, which may draw samples, report evaluations and ask for the end of the run
    """

    stop: StopRule = field(default_factory=StopRule)
    seed: int = 0
    dead_after_s: float = math.inf
    stuck_after_s: float = math.inf
    start_after_s: float = math.inf
    min_workers: int = 1
    model_on_servers: bool = False
    done: Data = ()
    shares: tuple[KeptShare, ...] = ()
    own_results: OwnResultRule = NOBODY_EXPELLED
    own_loops: bool = True


@dataclass(frozen=True, slots=True)
class RunContext:
    """Bundles what the parts of the coordinator share. `now` returns seconds since training started."""

    state: RunState
    roster: RunRoster
    totals: ProgressTotals
    members: Membership[Party]
    decide: Decisions
    now: Callable[[], float]
