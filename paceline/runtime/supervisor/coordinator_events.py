"""Takes what the coordinator reports, on the coordinator's thread: into the files of the run, and as events to the
supervisor."""

from __future__ import annotations

from collections.abc import Callable

from paceline.config import Config
from paceline.core.coordination import party
from paceline.core.coordination.control_messages import Hello, Plan, Progress
from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.party import Party
from paceline.core.trace import Evaluated, MemberChange, Record
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.supervisor.artifacts import RunArtifacts
from paceline.runtime.supervisor.events import (
    EventQueue,
    Failure,
    Finished,
    LossReached,
    MemberEvent,
    Started,
    StatusLine,
)
from paceline.runtime.supervisor.incarnations import PartyIncarnations
from paceline.runtime.supervisor.messages import LogHint, MessagesForUser, RunHeader


class CoordinatorEvents:
    """Implements CoordinatorListener. It decides nothing: what follows from an event is the supervisor's decision."""

    def __init__(
        self,
        config: Config,
        artifacts: RunArtifacts,
        events: EventQueue,
        incarnations: PartyIncarnations,
        header: RunHeader,
        now: Callable[[], float],
    ) -> None:
        """`now`: the coordinator's clock."""
        self._artifacts, self._events, self._incarnations = artifacts, events, incarnations
        self._header, self._now = header, now
        self._target_loss = config.stop.target_loss
        self._some_join_late = config.cluster.beginning < config.cluster.workers
        self._messages = MessagesForUser(artifacts.statistics)
        self._log_hint = LogHint(config.run.out)
        self._incarnation: dict[Party, int] = {}

    def joined(self, who: Party, hello: Hello) -> None:
        """Notes that an incarnation of a party has joined."""
        self._messages.joined(who, hello)
        self._header.joined(who, hello)
        self._incarnation[who] = hello.incarnation
        self._artifacts.joined(who, hello)
        self._incarnations.joined(who, hello.incarnation)

    def started(self, plan: Plan) -> None:
        """Notes that training begins, and refuses newcomers where they would lack state that no message brings them."""
        recipe = Recipe.from_json(plan.optimizer)
        if recipe.codecs.low_rank or recipe.store is not None:
            lacks = "what the store's other scripts have done" if recipe.store else "the factors of powersgd"
            self._incarnations.refuse_newcomers(f"lost workers are not started again: they would not know {lacks}")
            if self._some_join_late:
                self.failed(
                    party.COORDINATOR, f"--initial-workers: who comes late would not know {lacks}; leave it out", ""
                )
        slices = [part.stop - part.start for part in plan.layout.slices]
        self._artifacts.started(recipe, plan.length, plan.transport, slices)
        self._events.put(Started(self._header.lines(plan, recipe)))

    def progressed(self, rank: int, progress: Progress) -> None:
        """Notes a worker's progress."""
        self._artifacts.progressed(rank, progress, self._now())

    def recorded(self, record: Record) -> None:
        """Notes a record, and tells the supervisor of parties that were lost or returned."""
        self._artifacts.recorded(record)
        if isinstance(record, Evaluated) and 0 < record.loss <= self._target_loss:
            self._events.put(LossReached())
        line = self._messages.line_of(record)
        if isinstance(record, MemberChange) and record.event in ("lost", "returned"):
            who = Party.parse(record.party)
            self._events.put(MemberEvent(who, self._incarnation.get(who, 0), line, lost=record.event == "lost"))
        elif line:
            self._events.put(StatusLine(line))

    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None:
        """Reports a failure; the supervisor looks for its root cause."""
        self._events.put(Failure(who=who, cause=cause, details=details, kind=kind))

    def unheard(self, who: Party, incarnation: int, why: str) -> None:
        """Reports a process that has not connected; the supervisor kills it, which may start the next one."""
        line = f"{why}{self._log_hint(who)}; --connect-timeout gives it longer"
        self._events.put(MemberEvent(who, incarnation, line, lost=True))

    def finished(self, reason: str, seconds: float) -> None:
        """Reports that training is over and the model is saved."""
        self._artifacts.finished(reason, seconds)
        self._events.put(Finished())
