"""How a run is brought up: who has to answer in each phase, and what follows when all have.

    phase             must answer                          when all have
    GATHERING         starting workers, servers, evaluator Roster to everybody
    READYING          starting workers (Ready)             the plan is made; Plan to the servers
    PLACING_SERVERS   servers (Prepared)                   Plan to the workers and the evaluator
    PLACING_WORKERS   starting workers (Prepared)          the role is placed, the clock starts, Go to everybody
    TRAINING          nobody                               `elasticity.py` and `ending.py` take over
    FINISHING         everybody not lost (Saved)           `ending.py`: Exit to everybody; the run is over

The servers get the plan first: a worker pushes as soon as it is prepared, and its server must hold its slices by then.
A worker that the run does not wait for may say Hello in any phase. It hears nothing before Go has been sent; then it
joins as one that was lost does (`elasticity.py`).
The whole table of the phases, with their messages, is in `lifecycle.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import (
    BeginSnapshots,
    PartyJoined,
    PlanAgreed,
    StartTraining,
    TrainingStarted,
)
from paceline.core.coordination.elasticity import Elasticity
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import WAIT_SECONDS, RunContext, RunPhase, moving_seconds
from paceline.core.coordination.party import Party
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.coordinator.evaluator_watch import EvaluatorLives
from paceline.core.role import Role
from paceline.core.trace import MemberChange

TRAINING_AND_AFTER = (RunPhase.TRAINING, RunPhase.FINISHING, RunPhase.OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Holds what a plan is made of: what all that begin have reported.

    ready        of the starting workers, by rank; all must train the model of worker 0
    workers      the Hello of each of them; `servers`: those of the servers
    replaced     lost servers are replaced; `copied`: from the copy on the next server
    not_started  number of workers that may join later
    """

    ready: Sequence[control.Ready]
    workers: Sequence[control.Hello]
    servers: Sequence[control.Hello]
    replaced: bool
    copied: bool
    not_started: int


class RunPlanner(Protocol):
    """Decides what depends on the scheme and the configuration."""

    def plan(self, request: PlanRequest) -> control.Plan:
        """Returns the plan that all processes follow. Raises ConfigError if workers train different models."""

    def role(self, plan: control.Plan) -> Role:
        """Returns the coordinator's role of the scheme."""


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """Bundles the parts that work only during training, so that `begin_training` can start them together."""

    elasticity: Elasticity
    ending: RunEnding
    evaluator: EvaluatorLives


class BringUp:
    """Moves a run from one phase to the next, up to training.

    All methods run on the coordinator's thread.
    """

    def __init__(self, run: RunContext, planner: RunPlanner, parts: TrainingParts, snapshots: Snapshots | None) -> None:
        self._run, self._planner = run, planner
        self._parts, self._snapshots = parts, snapshots
        self._answers: dict[Party, Any] = {}  # what each party said in this phase
        self._early: dict[Party, control.Hello] = {}  # of workers that nobody waits for

    def joined(self, src: Party, hello: control.Hello) -> None:
        self._run.decide.add(PartyJoined(src, hello))
        device = hello.device if src.kind == "worker" else ""
        self._run.decide.record(MemberChange(at=0.0, party=str(src), event="joined", device=device, host=hello.host))
        self.answered(src, hello)

    def comes_early(self, src: Party, hello: control.Hello) -> None:
        """Keeps the Hello of a worker that may join later: it is told nothing before training has begun."""
        self._early[src] = hello

    def lost_early(self, src: Party) -> None:
        """Forgets such a worker, whose connection has ended."""
        self._early.pop(src, None)

    def answered(self, src: Party, answer: Any) -> None:
        self._answers[src] = answer
        self.go_on()

    def missing(self) -> list[Party]:
        """Returns who has not answered in this phase, or, while the run stops, the workers that still train."""
        run = self._run
        if run.state.stopping and run.state.training:
            return sorted(run.roster.training)
        if run.state.phase is RunPhase.FINISHING:
            return self._parts.ending.not_saved()
        return [who for who in self._concerned() if who not in self._answers]

    def _concerned(self) -> Sequence[Party]:
        """Returns who has to answer before the next phase begins."""
        roster = self._run.roster
        match self._run.state.phase:
            case RunPhase.GATHERING:
                return [*roster.beginning, *roster.servers, *roster.evaluator]
            case RunPhase.PLACING_SERVERS:
                return roster.servers
            case RunPhase.READYING | RunPhase.PLACING_WORKERS:
                return roster.beginning
            case _:
                return []

    def go_on(self) -> None:
        """Enters the next phase if everybody has answered in this one.

        It loops, since a phase can concern nobody: a run without servers is through PLACING_SERVERS at once.
        """
        while self._run.state.phase not in TRAINING_AND_AFTER and not self.missing():
            answers, self._answers = self._answers, {}  # emptied first: the next phase collects its own
            self._next(answers)

    def _next(self, answers: dict[Party, Any]) -> None:
        state, roster, decide = self._run.state, self._run.roster, self._run.decide
        match state.phase:
            case RunPhase.GATHERING:
                state.phase = RunPhase.READYING
                roster.hellos = answers
                decide.send([*roster.servers, *roster.beginning, *roster.evaluator], roster.roster(server_view=0))
            case RunPhase.READYING:
                self._agree([answers[who] for who in roster.beginning])
                state.phase = RunPhase.PLACING_SERVERS
                decide.send(roster.servers, state.plan)
            case RunPhase.PLACING_SERVERS:
                state.phase = RunPhase.PLACING_WORKERS
                decide.send([*roster.beginning, *roster.evaluator], state.plan)
            case RunPhase.PLACING_WORKERS:
                self._start()
            case _:
                raise AssertionError(state.phase)

    def _agree(self, ready: list[control.Ready]) -> None:
        """Makes the plan of the run from what the workers and servers reported.

        Raises ConfigError if workers train different models.
        """
        kept, roster = self._snapshots, self._run.roster
        replaced = kept is not None and not kept.refuses(ready[0], len(roster.servers))
        state, members = self._run.state, self._run.members
        state.model = ready[0]
        members.patience = replace(members.patience, join_s=WAIT_SECONDS + moving_seconds(state.length))
        request = PlanRequest(
            ready=ready,
            workers=[roster.hellos[who] for who in roster.beginning],
            servers=[roster.hellos[who] for who in roster.servers],
            replaced=replaced,
            copied=replaced and kept is not None and kept.copies,
            not_started=len(roster.not_started),
        )
        state.agreed = self._planner.plan(request)
        self._run.decide.add(PlanAgreed(state.agreed))

    def _start(self) -> None:
        """Places the coordinator's role and starts the clock of the run.

        Both happen before anything else of training is decided, since every later decision is dated by that clock.
        The executor calls `begin_training` when the clock runs.
        """
        state, roster = self._run.state, self._run.roster
        state.phase = RunPhase.TRAINING
        not_started = tuple(sorted(who.index for who in roster.not_started))
        self._run.decide.add(StartTraining(self._planner.role(state.plan), not_started))

    def begin_training(self) -> None:
        """Starts the parts of training and sends Go, once the clock runs.

        Watching begins before Go is sent: a worker that dies on receiving Go is noticed like any other.
        """
        state, roster, decide = self._run.state, self._run.roster, self._run.decide
        self._parts.elasticity.begin()
        self._parts.evaluator.begin()
        decide.add(TrainingStarted(state.plan))
        decide.send([*roster.servers, *roster.beginning, *roster.evaluator], control.Go())
        if self._snapshots is not None and state.plan.replaced:
            decide.add(BeginSnapshots(state.plan))
        self._parts.ending.begin()
        early, self._early = self._early, {}
        for who, hello in early.items():
            self._parts.elasticity.hello(who, hello)
