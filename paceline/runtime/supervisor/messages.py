"""Makes the lines that the user reads of a run while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.config import Config
from paceline.core.coordination.control_messages import Hello, Plan
from paceline.core.coordination.party import Party
from paceline.core.trace import (
    ASKS_FOR_END,
    IN_PARTS,
    LEFT_UNTRAINED,
    NO_STEPS,
    NOT_SAVED,
    OPERATOR,
    OVERLAP_VERDICTS,
    Decided,
    LostWork,
    MemberChange,
    Record,
)
from paceline.live.cpu_topology import NONE
from paceline.runtime.run_folder.run_statistics import RunStatistics
from paceline.runtime.run_folder.scale_up_signal import GROWS, grows
from paceline.runtime.server.snapshot_policy import SnapshotPolicy
from paceline.runtime.spec.core_binding import binding_notes
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.rate_scale import rate_note
from paceline.runtime.supervisor.credentials import Credentials, security_note


class LogHint:
    """Says where the log of a party lies, as the end of a line; nothing where it is on another host."""

    def __init__(self, out: str) -> None:
        """`out`: the folder of the run."""
        self._logs = Path(out, "logs")

    def __call__(self, who: Party) -> str:
        """Returns `; its log is runs/x/logs/worker-0.log`, or ""."""
        log = self._logs / f"{str(who).replace(' ', '-')}.log"
        return f"; its log is {log}" if log.is_file() else ""


class RunHeader:
    """Makes the first lines of a run, once the plan is known."""

    def __init__(
        self,
        config: Config,
        begun: Sequence[str],
        snapshots: SnapshotPolicy,
        credentials: Credentials | None,
        *,
        has_free_places: bool,
    ) -> None:
        """`begun`: lines that were known before the plan. `has_free_places`: the user may add workers."""
        self._config, self._begun, self._snapshots = config, begun, snapshots
        self._credentials, self._has_free_places = credentials, has_free_places
        self._workers: dict[int, tuple[str, frozenset[int]]] = {}

    def joined(self, who: Party, hello: Hello) -> None:
        """Notes where a worker is, and which CPUs it may use."""
        if who.kind == "worker":
            self._workers[who.index] = (hello.host, frozenset(hello.cpus))

    def lines(self, plan: Plan, recipe: Recipe) -> tuple[str, ...]:
        """Returns the lines; a note that does not apply is left out."""
        bound = binding_notes(self._workers) if self._config.cluster.bind_cores != NONE else []
        of_plan = [
            _overlap_note(self._config, plan),
            GROWS.format(self._config.cluster) if self._has_free_places and grows() else "",
            rate_note(recipe),
            recipe.robust.note(plan.workers, plan.length),
            self._snapshots.note,
        ]
        secured = security_note(self._config, self._credentials, plan.allreduce)
        return (*self._begun, *plan.notes, *bound, *filter(None, of_plan), secured)


def _overlap_note(config: Config, plan: Plan) -> str:
    """Returns why workers do not communicate while they compute, where they otherwise would; "" if there is nothing to
    say."""
    sliced = len(plan.layout.slices) > 1 and not config.cluster.step_ms
    if config.cluster.overlap != "auto" or not plan.crowded or not sliced:
        return ""
    return f"workers compute first and communicate then: {plan.crowded} (--overlap)"


class MessagesForUser:
    """Makes the line for a record. It knows where each party runs, and where lost parties ran."""

    def __init__(self, statistics: RunStatistics) -> None:
        self._statistics = statistics
        self._where: dict[Party, str] = {}
        self._lost_at: dict[Party, str] = {}
        self._told: set[str] = set()  # verdicts on overlap; the line of one worker stands for all that agree with it

    def joined(self, who: Party, hello: Hello) -> None:
        """Notes host and PID of a party."""
        self._where[who] = f"{hello.host}, pid {hello.pid}"

    def line_of(self, record: Record) -> str:
        """Returns the line about `record`; empty for most."""
        match record:
            case MemberChange():
                return self._line_of_member(Party.parse(record.party), record)
            case LostWork(rank=rank, samples=samples, group=group) if group >= 0:
                whose = f"{samples:,} samples of worker {rank} in group {group}"
                return f"{whose} are lost with {record.party}, which spoke for it, and count no more"
            case LostWork(samples=samples):
                return f"{samples:,} samples of local work are lost with {record.party}, and count no more"
            case Decided(party=who, verdict=verdict, reason=reason) if who == OPERATOR:
                return f"operator: {verdict}: {reason}"
            case Decided(verdict=verdict) if verdict in (NOT_SAVED, LEFT_UNTRAINED, ASKS_FOR_END):
                return record.reason
            case Decided(verdict=verdict) if verdict == NO_STEPS or IN_PARTS.fullmatch(verdict):
                return f"worker {record.rank} {verdict}: {record.reason}"
            case Decided(verdict=verdict) if verdict in OVERLAP_VERDICTS and verdict not in self._told:
                self._told.add(verdict)
                return f"{record.party} {verdict}: {record.reason} (--overlap)"
        return ""

    def _line_of_member(self, who: Party, record: MemberChange) -> str:
        """Returns the line about a party that was lost, drained, expelled, replaced or returned; "" otherwise."""
        match record.event:
            case "lost":
                self._lost_at[who] = self._where[who]
                return f"{who} ({self._where[who]}) lost{self.after_steps(who)}: {record.reason}"
            case "returned":
                self._lost_at[who] = self._where[who]
                new = who.kind == "worker" and self._statistics.incarnations(who) == 1
                return f"{who} ({self._where[who]}) {'joined' if new else 'is back'}: {record.reason}"
            case "drained":
                steps = self._statistics.steps(who)
                return f"{who} ({self._where[who]}) was drained after {steps} steps: {record.reason}"
            case "expelled":
                return f"{who} ({self._where[who]}) was expelled{self.after_steps(who)}: {record.reason}"
            case "replaced":
                before, now = self._lost_at[who], self._where[who]
                return f"{who} ({before if now == before else f'{before}; now {now}'}) was replaced: {record.reason}"
        return ""

    def after_steps(self, who: Party) -> str:
        """Returns " after N steps" for a worker; "" for other parties."""
        return f" after {self._statistics.steps(who)} steps" if who.kind == "worker" else ""
