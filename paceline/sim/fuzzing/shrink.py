"""Shrinks a failing run: drops what it does not need to fail, as long as it fails in the same way.

    first     all but one of the runs of the plan
    then      faults: halves, quarters, ... single ones (delta debugging: Zeller and Hildebrandt, Simplifying and
              isolating failure-inducing input, IEEE TSE 28(2), 2002)
    then      workers and servers, with the faults that hit only them
    then      hazards of the links, drawn parameters of the scheme, how long faults last
    again     from the second step, until nothing can be dropped any more, or the time is up

A run fails in the same way if the same kind of exception begins with the same words, numbers left out. Every candidate
is a run of its own, so a candidate costs as much as the failing seed did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.sim.cluster.model import LASTING, Cluster, Fault
from paceline.sim.fuzzing.fuzz import FuzzPlan, play, with_a_liar

WORDS = 5
"""Words of the text of a failure by which it is known again."""
WORKERS_MIN = 2
SHORT_S = 0.3
"""Seconds to which the length of a fault is cut."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Holds the smallest plan that was found to fail. `tried`: candidates; `whole`: there was time for all of them."""

    plan: FuzzPlan
    failure: str
    tried: int
    whole: bool


def failure_of(plan: FuzzPlan) -> str:
    """Plays a plan; returns the exception that it ends with as a line, or "" if it passes."""
    try:
        play(plan)
    except Exception as error:  # a bug may show as any exception
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def kind_of(failure: str) -> str:
    """Returns that by which a failure is known again: the kind of exception and the first words, without numbers."""
    name, _, text = failure.partition(": ")
    text = re.sub(r"^(\w+, )?seed \d+, at [\d.]+ s: ", "", text)
    return " ".join([name, *re.sub(r"[\d.]+", "#", text).split()[:WORDS]])


def shrink(
    plan: FuzzPlan,
    failure: str,
    *,
    time_is_up: Callable[[], bool],
    progress: Callable[[FuzzPlan, int], None] = lambda plan, tried: None,
) -> Shrunk:
    """Returns the smallest plan found that fails as `plan` does.

    time_is_up: asked before each candidate. progress: told the smallest plan so far, and how many were tried.
    """
    wanted, tried, changed = kind_of(failure), 0, True
    while changed:
        changed = False
        for candidates in PASSES:
            dropped = True
            while dropped:  # the same pass again: its candidates are made of what is left
                dropped = False
                for candidate in candidates(plan):
                    if time_is_up():
                        return Shrunk(plan, failure, tried, whole=False)
                    tried += 1
                    now = failure_of(candidate)
                    if now and kind_of(now) == wanted:
                        plan, failure, dropped, changed = candidate, now, True, True
                        progress(plan, tried)
                        break
    return Shrunk(plan, failure, tried, whole=True)


# ---- candidates: plans with a little less -------------------------------------------------------------------
def _runs(plan: FuzzPlan) -> Iterator[FuzzPlan]:
    """One run alone. The liar of a plan becomes one of its faults."""
    if len(plan.runs) > 1:
        alone = ("faults", "stall", "stop", "clock", "bring-up")
        yield from (replace(plan, runs=(run,)) for run in alone if run in plan.runs)
    if liar := with_a_liar(plan):
        yield liar


def _faults(plan: FuzzPlan) -> Iterator[FuzzPlan]:
    faults = plan.cluster.faults
    size = len(faults)
    while size:
        for at in range(0, len(faults), size):
            yield _with(plan, faults=faults[:at] + faults[at + size :])
        size //= 2


def _parties(plan: FuzzPlan) -> Iterator[FuzzPlan]:
    cluster = plan.cluster
    for rank in reversed(range(cluster.workers if cluster.workers > WORKERS_MIN else 0)):
        if (smaller := _or_none(lambda rank=rank: _without_worker(plan, rank))) is not None:  # type: ignore[misc]
            yield smaller
    if (smaller := _or_none(lambda: _without_last_server(plan))) is not None:
        yield smaller


def _without_worker(plan: FuzzPlan, rank: int) -> FuzzPlan | None:
    """Returns the plan without that worker, where it has a host of its own."""
    host = plan.cluster.worker_placements()[rank].host
    if host.count > 1 or host.workers > 1 or host.servers:
        return None
    faults = [_moved(fault, host.name, rank) for fault in plan.cluster.faults]
    hosts = tuple(other for other in plan.cluster.hosts if other is not host)
    cluster = replace(plan.cluster, hosts=hosts, faults=tuple(filter(None, faults)))
    return _fitting(replace(plan, cluster=cluster, samples=plan.samples[:rank] + plan.samples[rank + 1 :]))


def _moved(fault: Fault, host: str, rank: int) -> Fault | None:
    """Returns what is left of a fault without that host, the ranks of the workers behind it one less."""
    hosts = tuple(name for name in fault.hosts if name != host)
    workers = tuple(other - (other > rank) for other in fault.workers if other != rank)
    return replace(fault, hosts=hosts, workers=workers) if hosts or workers or fault.sites else None


def _without_last_server(plan: FuzzPlan) -> FuzzPlan | None:
    """Returns the plan with a server less on the last host that has some, where it has nothing but servers."""
    host = next((host for host in reversed(plan.cluster.hosts) if host.servers and not host.devices), None)
    if host is None:
        return None
    gone = f"{host.name}-{host.count - 1}" if host.count > 1 else host.name
    left = (replace(host, count=host.count - 1),) if host.count > 1 else ()
    hosts = tuple(new for old in plan.cluster.hosts for new in (left if old is host else (old,)))
    alone = {f"{host.name}-0": host.name} if host.count == 2 else {}
    faults = []
    for fault in plan.cluster.faults:
        names = tuple(alone.get(name, name) for name in fault.hosts if name != gone)
        if names or fault.workers or fault.sites:
            faults.append(replace(fault, hosts=names))
    return _fitting(replace(plan, cluster=replace(plan.cluster, hosts=hosts, faults=tuple(faults))))


def _quality(plan: FuzzPlan) -> Iterator[FuzzPlan]:
    """Better links, the scheme's own parameters, shorter faults."""
    hazards = plan.cluster.hazards
    if hazards is not None:
        for name in ("lost", "repeated", "late"):
            if getattr(hazards, name):
                yield _with(plan, hazards=replace(hazards, **{name: 0.0}))  # type: ignore[arg-type]
    plain = make(plan.scheme.name, {})
    if plain.parameters() != plan.scheme.parameters():
        candidate = _or_none(lambda: _fitting(replace(plan, scheme=plain)))
        yield from (candidate,) if candidate else ()
    faults = plan.cluster.faults
    for n, fault in enumerate(faults):
        if fault.kind in LASTING and fault.for_s > SHORT_S:
            yield _with(plan, faults=(*faults[:n], replace(fault, for_s=SHORT_S), *faults[n + 1 :]))


PASSES: tuple[Callable[[FuzzPlan], Iterator[FuzzPlan]], ...] = (_runs, _faults, _parties, _quality)


def _with(plan: FuzzPlan, **changes: object) -> FuzzPlan:
    cluster: Cluster = replace(plan.cluster, **changes)  # type: ignore[arg-type]
    return replace(plan, cluster=cluster)


def _fitting(plan: FuzzPlan) -> FuzzPlan:
    """Returns `plan`. Raises ConfigError if its scheme does not run on its cluster."""
    plan.scheme.check(plan.cluster.workers, plan.cluster.servers)
    return plan


def _or_none(make_plan: Callable[[], FuzzPlan | None]) -> FuzzPlan | None:
    """Returns the plan, or None for one that cannot be."""
    try:
        return make_plan()
    except ConfigError:
        return None
