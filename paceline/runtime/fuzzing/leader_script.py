"""Scripts of runs whose leader is lost, their transcripts, and how they shrink.

seed = 7                    # a script as of any run (`paceline.sim.fuzzing.script`)
runs = ["leader"]
goal = 12                   # samples that the last run trains; 0: it runs until all have left
[cluster]                   # its faults are those of the first run
[[losses]]                  # one for each time that the leader is lost
at_s = 3.25
stops_at = 40               # the call of its disk before which it is lost; left out: none
cuts_power = true
[[losses.faults]]           # of the run that begins then

A plan shrinks by losses, then by faults of each run, by parties, and by hazards, parameters and what is lost. The
random stream of the disk follows from the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.trace import Record, Span
from paceline.runtime.fuzzing.leader_loss import LeaderLoss, LeaderPlan, play
from paceline.sim.cluster.model import Fault
from paceline.sim.cluster.toml_file import record_of, table_text
from paceline.sim.fuzzing import script, shrink
from paceline.sim.fuzzing.fuzz import FuzzPlan
from paceline.sim.kernel.virtual_disk import DiskFaults
from paceline.sim.simulation import Simulation

NEVER = DiskFaults().stops_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedLoss:
    """Is a table `[[losses]]` of a script: a loss of the leader, and the faults of the run after it. `stops_at`: 0 for
    no call."""

    at_s: float
    stops_at: int = 0
    cuts_power: bool = False
    faults: tuple[Fault, ...] = ()


# ---- scripts -----------------------------------------------------------------------------------------------
def script_of(plan: LeaderPlan, *, about: str = "") -> str:
    """Returns the script of a plan. `about` becomes a comment at its top."""
    losses = [
        ScriptedLoss(
            at_s=loss.at_s,
            stops_at=0 if loss.stops_at == NEVER else int(loss.stops_at),
            cuts_power=loss.cuts_power,
            faults=later.cluster.faults,
        )
        for loss, later in zip(plan.losses, plan.plans[1:], strict=True)
    ]
    first = script.script_of(plan.plans[0], about=about, more={"goal": plan.goal})
    return "\n".join([first, *(table_text(loss, "losses", is_list=True) for loss in losses)])


def is_of_a_leader(table: dict[str, Any]) -> bool:
    """Returns True if the table of a script is that of such a run."""
    return table.get("runs") == ["leader"]


def plan_from(table: dict[str, Any]) -> LeaderPlan:
    """Returns the plan of a script's table. Raises ConfigError, in one line, for what is wrong."""
    goal, given = table.get("goal", 0), table.get("losses")
    if type(goal) is not int or goal < 0:
        raise ConfigError(f"goal = {goal!r}: give a number of samples, or 0")
    if not isinstance(given, list) or not given:
        raise ConfigError("runs: leader needs [[losses]], one for each time that the leader is lost")
    first = script.plan_from({name: value for name, value in table.items() if name not in ("goal", "losses")}, LEADER)
    if first.cluster.hazards is None or first.cluster.hazards.servers_keep == "all":
        raise ConfigError('cluster.hazards.servers_keep: give "snapshot" or "replica", or nothing is saved')
    losses = [record_of(ScriptedLoss, loss, "losses") for loss in given]
    later = [replace(first, cluster=replace(first.cluster, faults=loss.faults)) for loss in losses]
    lost = [LeaderLoss(loss.at_s, loss.stops_at or NEVER, loss.cuts_power) for loss in losses]
    return LeaderPlan((first, *later), tuple(lost), goal)


LEADER = ("leader",)


# ---- transcripts -------------------------------------------------------------------------------------------
class LeaderTranscript:
    """Writes down what happens in each run of a plan, a line each; `play` tells it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._told: list[tuple[float, str]] = []
        self._sim: Simulation | None = None

    def record(self, record: Record) -> None:
        """Takes a record of the run that goes on."""
        if not isinstance(record, Span) and self._sim:
            self._told.append((self._sim.now, script.record_line(record)))

    def begins(self, sim: Simulation, run: FuzzPlan, how: str) -> None:
        """Notes that a run begins."""
        self.lines.append(f"RUN {how}")
        self._sim = sim
        self._told = [(fault.at_s, script.fault_line(fault)) for fault in run.cluster.faults]

    def ends(self, how: str) -> None:
        """Notes that the run has ended."""
        assert self._sim is not None
        self.lines += script.in_their_order(self._told, self._sim.now, how)


def transcript(plan: LeaderPlan) -> Iterator[str]:
    """Yields what happens in all runs of a plan, a line each, as `script.transcript` does; each begins at 0 s."""
    told = LeaderTranscript()
    try:
        play(plan, told)
        told.ends("no violation")
    except Exception as error:
        told.ends(script.violation(error).splitlines()[0])
    yield from told.lines


# ---- candidates: plans with a little less -------------------------------------------------------------------
def shrunk(plan: LeaderPlan, failure: str, **how: Any) -> shrink.Shrunk[LeaderPlan]:
    """Returns the smallest plan found that fails as `plan` does; `how` as in `shrink.shrink_by`."""
    return shrink.shrink_by(plan, failure, PASSES, _failure_of, **how)


def _failure_of(plan: LeaderPlan) -> str:
    try:
        play(plan)
    except Exception as error:  # a bug may show as any exception
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def _losses(plan: LeaderPlan) -> Iterator[LeaderPlan]:
    """One loss less, and with it the run that it ends."""
    for at in range(len(plan.losses) if len(plan.losses) > 1 else 0):
        plans = plan.plans[:at] + plan.plans[at + 1 :]
        yield replace(plan, plans=plans, losses=plan.losses[:at] + plan.losses[at + 1 :])


def _faults(plan: LeaderPlan) -> Iterator[LeaderPlan]:
    for at, run in enumerate(plan.plans):
        for faults in shrink.fewer(run.cluster.faults):
            less = replace(run, cluster=replace(run.cluster, faults=faults))
            yield replace(plan, plans=(*plan.plans[:at], less, *plan.plans[at + 1 :]))


def _parties(plan: LeaderPlan) -> Iterator[LeaderPlan]:
    workers = plan.plans[0].cluster.workers
    for rank in reversed(range(workers if workers > shrink.WORKERS_MIN else 0)):
        yield from _of_all(plan, [shrink.without_worker(run, rank) for run in plan.plans])
    yield from _of_all(plan, [shrink.without_last_server(run) for run in plan.plans])


def _quality(plan: LeaderPlan) -> Iterator[LeaderPlan]:
    """Better links, the scheme's own parameters, plainer losses."""
    for name in shrink.HAZARDS:
        yield from _of_all(plan, [shrink.without_hazard(run, name) for run in plan.plans])
    yield from _of_all(plan, [shrink.with_defaults(run) for run in plan.plans])
    for at, loss in enumerate(plan.losses):
        for plainer in (replace(loss, cuts_power=False), replace(loss, stops_at=NEVER)):
            if plainer != loss:
                yield replace(plan, losses=(*plan.losses[:at], plainer, *plan.losses[at + 1 :]))
    if plan.goal:
        yield replace(plan, goal=0)


def _of_all(plan: LeaderPlan, runs: list[FuzzPlan | None]) -> Iterator[LeaderPlan]:
    """Yields the plan with these runs, if there are all of them: they have one cluster and one scheme."""
    found = tuple(run for run in runs if run is not None)
    if len(found) == len(runs):
        yield replace(plan, plans=found)


PASSES = (_losses, _faults, _parties, _quality)
