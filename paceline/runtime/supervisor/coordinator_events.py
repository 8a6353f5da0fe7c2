"""What the coordinator reports, on its own thread: for the files of the run, and as events for its supervisor."""

from __future__ import annotations

from collections.abc import Callable

from paceline.config import Config
from paceline.core.trace import MemberChange, Record
from paceline.live import party
from paceline.live.coordinator.decisions import FailureKind
from paceline.live.party import Party
from paceline.live.protocol.control_messages import Hello, Plan, Progress
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.supervisor.artifacts import RunArtifacts
from paceline.runtime.supervisor.events import EventQueue, Failure, Finished, MemberEvent, Started, StatusLine
from paceline.runtime.supervisor.incarnations import PartyIncarnations
from paceline.runtime.supervisor.messages import MessagesForUser, RunHeader


class CoordinatorEvents:
    """A CoordinatorListener. It decides nothing: what follows from an event is the supervisor's to say."""

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
        self._some_join_late = config.cluster.beginning < config.cluster.workers
        self._messages = MessagesForUser(artifacts.statistics)
        self._incarnation: dict[Party, int] = {}

    def joined(self, who: Party, hello: Hello) -> None:
        self._messages.joined(who, hello)
        self._incarnation[who] = hello.incarnation
        self._artifacts.joined(who, hello)
        self._incarnations.joined(who, hello.incarnation)

    def started(self, plan: Plan) -> None:
        recipe = Recipe.from_json(plan.optimizer)
        if recipe.codecs.low_rank or recipe.store is not None:
            lacks = "what the store's other scripts have done" if recipe.store else "the factors of powersgd"
            self._incarnations.refuse_newcomers(f"lost workers are not started again: they would not know {lacks}")
            if self._some_join_late:
                self.failed(
                    party.COORDINATOR, f"--initial-workers: who comes late would not know {lacks}; leave it out", ""
                )
        self._artifacts.started(recipe, plan.length, plan.transport)
        self._events.put(Started(self._header.lines(plan, recipe)))

    def progressed(self, rank: int, progress: Progress) -> None:
        self._artifacts.progressed(rank, progress, self._now())

    def recorded(self, record: Record) -> None:
        self._artifacts.recorded(record)
        line = self._messages.line_of(record)
        if isinstance(record, MemberChange) and record.event in ("lost", "returned"):
            who = Party.parse(record.party)
            self._events.put(MemberEvent(who, self._incarnation.get(who, 0), line, lost=record.event == "lost"))
        elif line:
            self._events.put(StatusLine(line))

    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None:
        self._events.put(Failure(who=who, cause=cause, details=details, kind=kind))

    def finished(self, reason: str, seconds: float) -> None:
        self._artifacts.finished(reason, seconds)
        self._events.put(Finished())
