"""Shrinks a failing run: drops what it does not need to fail, as long as it fails in the same way.

    first     all but one of the runs of the plan
    then      faults: halves, quarters, ... single ones (delta debugging: Zeller and Hildebrandt, Simplifying and
              isolating failure-inducing input, IEEE TSE 28(2), 2002)
    then      workers and servers, with the faults that hit only them
    then      hazards of the links, drawn parameters of the scheme, how long faults last
    again     from the second step, until nothing can be dropped any more, or the time is up

A run fails in the same way if the same kind of exception begins with the same words, numbers left out. Every candidate
is a run of its own, so a candidate costs as much as the failing seed did. `shrink_by` shrinks plans of any
kind, such as one whose leader is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.sim.cluster.model import LASTING, Cluster, Fault
from paceline.sim.fuzzing.fuzz import FuzzPlan, play, with_a_liar, with_bad_results, with_drains, with_shared_hosts

WORDS = 5
"""Words of the text of a failure by which it is known again."""
WORKERS_MIN = 2
SHORT_S = 0.3
"""Seconds to which the length of a fault is cut."""

P = TypeVar("P")


@dataclass(frozen=True)
class Shrunk(Generic[P]):
    """Holds the smallest plan that was found to fail. `tried`: candidates; `whole`: there was time for all of them."""

    plan: P
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
) -> Shrunk[FuzzPlan]:
    """Returns the smallest plan found that fails as `plan` does; see `shrink_by`."""
    return shrink_by(plan, failure, PASSES, failure_of, time_is_up=time_is_up, progress=progress)


def shrink_by(
    plan: P,
    failure: str,
    passes: Sequence[Callable[[P], Iterator[P]]],
    fails: Callable[[P], str],
    *,
    time_is_up: Callable[[], bool],
    progress: Callable[[P, int], None],
) -> Shrunk[P]:
    """Returns the smallest plan found that fails as `plan` does.

    passes: each yields plans with a little less. fails: plays one, and returns its failure, or "". time_is_up: asked
    before each candidate. progress: told the smallest plan so far, and how many were tried.
    """
    wanted, tried, changed = kind_of(failure), 0, True
    while changed:
        changed = False
        for candidates in passes:
            dropped = True
            while dropped:  # the same pass again: its candidates are made of what is left
                dropped = False
                for candidate in candidates(plan):
                    if time_is_up():
                        return Shrunk(plan, failure, tried, whole=False)
                    tried += 1
                    now = fails(candidate)
                    if now and kind_of(now) == wanted:
                        plan, failure, dropped, changed = candidate, now, True, True
                        progress(plan, tried)
                        break
    return Shrunk(plan, failure, tried, whole=True)


# ---- candidates: plans with a little less -------------------------------------------------------------------
def _runs(plan: FuzzPlan) -> Iterator[FuzzPlan]:
    """One run alone. What the liar, the drains, shared hosts and bad results of a plan change becomes its cluster and
    faults."""
    if len(plan.runs) > 1:
        alone = ("faults", "stall", "stop", "clock", "bring-up", "upgrade", "servers")
        yield from (replace(plan, runs=(run,)) for run in alone if run in plan.runs)
    of_others = (with_a_liar(plan), with_drains(plan), with_shared_hosts(plan), with_bad_results(plan))
    yield from filter(None, of_others)


def fewer(faults: Sequence[Fault]) -> Iterator[tuple[Fault, ...]]:
    """Yields what is left without all faults, without each half, each quarter, ... and without each single one."""
    size = len(faults)
    while size:
        for at in range(0, len(faults), size):
            yield (*faults[:at], *faults[at + size :])
        size //= 2


def _faults(plan: FuzzPlan) -> Iterator[FuzzPlan]:
    yield from (_with(plan, faults=faults) for faults in fewer(plan.cluster.faults))


def _parties(plan: FuzzPlan) -> Iterator[FuzzPlan]:
    cluster = plan.cluster
    for rank in reversed(range(cluster.workers if cluster.workers > WORKERS_MIN else 0)):
        if (smaller := without_worker(plan, rank)) is not None:
            yield smaller
    if (smaller := without_last_server(plan)) is not None:
        yield smaller


def without_worker(plan: FuzzPlan, rank: int) -> FuzzPlan | None:
    """Returns the plan without that worker, where it has a host of its own; None for one that cannot be."""
    return _or_none(lambda: _without_worker(plan, rank))


def without_last_server(plan: FuzzPlan) -> FuzzPlan | None:
    """Returns the plan with a server less; None for one that cannot be."""
    return _or_none(lambda: _without_last_server(plan))


def _without_worker(plan: FuzzPlan, rank: int) -> FuzzPlan | None:
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
    host = next((host for host in reversed(plan.cluster.hosts) if host.servers), None)
    if host is None:
        return None
    if host.devices:
        hosts = tuple(replace(old, servers=old.servers - 1) if old is host else old for old in plan.cluster.hosts)
        return _fitting(_with(plan, hosts=hosts)) if host.count == 1 else None
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
    for name in HAZARDS:
        if (better := without_hazard(plan, name)) is not None:
            yield better
    if (candidate := with_defaults(plan)) is not None:
        yield candidate
    faults = plan.cluster.faults
    for n, fault in enumerate(faults):
        if fault.kind in LASTING and fault.for_s > SHORT_S:
            yield _with(plan, faults=(*faults[:n], replace(fault, for_s=SHORT_S), *faults[n + 1 :]))


HAZARDS = ("lost", "repeated", "late")
"""Hazards of the links that can be left out."""


def without_hazard(plan: FuzzPlan, name: str) -> FuzzPlan | None:
    """Returns the plan without that hazard; None if it has none of that name."""
    hazards = plan.cluster.hazards
    if hazards is None or not getattr(hazards, name):
        return None
    return _with(plan, hazards=replace(hazards, **{name: 0.0}))  # type: ignore[arg-type]


def with_defaults(plan: FuzzPlan) -> FuzzPlan | None:
    """Returns the plan with the scheme's own parameters; None if it has these, or if they do not fit the cluster."""
    plain = make(plan.scheme.name, {})
    if plain.parameters() == plan.scheme.parameters():
        return None
    return _or_none(lambda: _fitting(replace(plan, scheme=plain)))


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
