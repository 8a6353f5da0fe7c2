"""Fault scripts: one fuzzed run as a text that can be read, changed, kept and replayed.

seed = 4711                 # of all that is drawn while the run goes on
scheme = "ssp"
runs = ["faults"]           # of fuzz.RUNS
samples = [3, 7]            # in a batch, by rank
leased = [60, 7]            # samples of an epoch and of a lease
[parameters]                # of the scheme
staleness = 2
[cluster]                   # as in a cluster file
[[cluster.faults]]
kind = "crash"
at_s = 3.25
hosts = ["worker-1"]
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from paceline.core.errors import ConfigError, PacelineError
from paceline.core.scheme import make
from paceline.core.trace import Record, Span, to_dict
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.cluster.model import Fault
from paceline.sim.cluster.toml_file import cluster_of, table_text
from paceline.sim.fuzzing.fuzz import (
    CALM_S,
    RUNS,
    FuzzPlan,
    clocks_of,
    go_on_to_the_end,
    go_to_its_end,
    simulation,
    versions_of,
    with_server_losses,
)
from paceline.sim.fuzzing.runs import bring_up, clocks, server_losses, stopping, upgrades
from paceline.sim.simulation import Simulation


def script_of(plan: FuzzPlan, *, about: str = "", more: Mapping[str, Any] | None = None) -> str:
    """Returns the script of a plan. `about` becomes a comment at its top; `more`: further keys, which another kind of
    plan has."""
    lines = [f"# {line}" for line in about.splitlines()]
    lines += [f"seed = {plan.seed}", f"scheme = {json.dumps(plan.scheme.name)}"]
    for name in ("runs", "samples", "leased"):
        lines.append(f"{name} = {json.dumps(getattr(plan, name))}")
    lines += [f"{name} = {json.dumps(value)}" for name, value in (more or {}).items()]
    lines += ["", "[parameters]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in plan.scheme.parameters().items()]
    return "\n".join([*lines, "", table_text(plan.cluster, "cluster")])


def plan_of(text: str) -> FuzzPlan:
    """Returns the plan of a script. Raises ConfigError, in one line, for what is wrong."""
    return plan_from(table_of(text))


def table_of(text: str) -> dict[str, Any]:
    """Returns the table that a script is. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the script: {error}") from None


def plan_from(table: dict[str, Any], allowed: Sequence[str] = RUNS) -> FuzzPlan:
    """Returns the plan of a script's table, whose runs are some of `allowed`. Raises ConfigError."""
    if unknown := table.keys() - {"seed", "scheme", "runs", "samples", "leased", "parameters", "cluster"}:
        raise ConfigError(f"the script has an unknown key: {', '.join(sorted(unknown))}")
    cluster = cluster_of(table.get("cluster"), "cluster")
    runs, samples, leased = (
        _tuple(table, name, kind) for name, kind in (("runs", str), ("samples", int), ("leased", int))
    )
    if not isinstance(table.get("seed"), int) or not isinstance(table.get("scheme"), str):
        raise ConfigError("the script needs a seed, a whole number, and a scheme, its name")
    if not runs or set(runs) - set(allowed):
        raise ConfigError(f"runs: give some of {', '.join(allowed)}")
    if len(samples) != cluster.workers or len(leased) != 2 or min(*samples, *leased) < 1:
        raise ConfigError(f"samples: give {cluster.workers} numbers, one a worker, and two for leased, all 1 or more")
    scheme = make(table["scheme"], dict(table.get("parameters", {})))
    scheme.check(cluster.workers, cluster.servers)
    return FuzzPlan(table["seed"], scheme, cluster, samples, leased, runs)


def _tuple(table: dict[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    values = table.get(name)
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ConfigError(f"the script needs {name}, a list")
    return tuple(values)


def transcript(plan: FuzzPlan) -> Iterator[str]:
    """Yields what happens in the run with faults, a line each: the faults, and the records of the trace.

    If the run that is to end, the one whose clocks jump, the one that is brought up, or the one with other versions is
    the only one of the plan, it is that one.
    Spans of time are left out. Times are virtual seconds of the simulation, in the order in which things happen. It
    ends with the violation, if there is one.
    """
    told: list[tuple[float, str]] = [(fault.at_s, fault_line(fault)) for fault in plan.cluster.faults]

    made: list[Simulation] = []  # none while it is being made: some coordinators decide something then

    def tell(record: Record) -> None:
        if not isinstance(record, Span):
            told.append((made[0].now if made else 0.0, record_line(record)))

    wish = stopping.draw(plan.seed, plan.cluster, plan.leased[0]) if plan.runs == ("stop",) else None
    check = stopping.check
    if plan.runs == ("clock",):
        wish, check = clocks_of(plan), clocks.check
    if plan.runs == ("bring-up",):
        wish, check = bring_up.draw(plan.seed, plan.cluster, plan.leased[0]), bring_up.check
    if plan.runs == ("upgrade",):
        wish, check = versions_of(plan), upgrades.check
    losing = with_server_losses(plan) if plan.runs == ("servers",) else None
    sim = simulation(losing or plan, tell, wish)
    made.append(sim)
    stop = server_losses.losing(sim, CALM_S) if losing else None
    try:
        last = (go_to_its_end(sim, wish, check) if wish else go_on_to_the_end(sim, stop)) or "no violation"
    except Exception as error:
        last = violation(error).splitlines()[0]
    yield from in_their_order(told, sim.now, last)


FOUND_BY_A_CHECK = InvariantBroken | PacelineError
"""Failures whose text says what was found. A bug may show as any other exception."""


def violation(error: Exception) -> str:
    """Returns what is said of a run that ends with `error`, by name unless a check has found it."""
    kind = "" if isinstance(error, FOUND_BY_A_CHECK) else f"{type(error).__name__}: "
    return f"VIOLATION: {kind}{error}"


def in_their_order(told: Iterable[tuple[float, str]], now: float, last: str) -> Iterator[str]:
    """Yields the lines of what was told up to `now`, with their times in seconds, and then `last`."""
    until_now = [(at, line) for at, line in told if at <= now]
    yield from (f"{at:9.3f} s  {line}" for at, line in sorted(until_now, key=lambda one: one[0]))
    yield f"{now:9.3f} s  {last}"


def fault_line(fault: Fault) -> str:
    """Returns the line of a transcript for a fault."""
    whom = ", ".join([*(f"worker {rank}" for rank in fault.workers), *fault.hosts, *fault.sites])
    lasting = f" for {fault.for_s:g} s" if fault.for_s else ""
    return f"FAULT {fault.kind} of {whom}{lasting}"


def record_line(record: Record) -> str:
    """Returns the line of a transcript for a record of the trace."""
    kind, *rest = ((name, value) for name, value in to_dict(record).items() if name != "at")
    return " ".join(
        [
            str(kind[1]),
            *(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in rest),
        ]
    )
