"""What other schemes would give on the machines of a run, by the simulator: in the background of the live page.

Timing only and without torch: every worker's steps take what its latest took, and an exchange costs what it costs the
one who loses least with it now, whatever the scheme exchanges. Schemes have the run's own parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.cli.support import scheme_catalogue
from paceline.core.adaptive.grouping import Groups, written
from paceline.core.errors import PacelineError
from paceline.core.scheme import Scheme, lookup, make
from paceline.core.tiers.group_choice import WithRankGroups
from paceline.core.tiers.rank_groups import groups_by_place
from paceline.core.vector import Ghost
from paceline.observe.watch.reader import Forecast, Measured
from paceline.schemes.gsp import GSP
from paceline.sim import Cluster, LocalSteps, Simulation
from paceline.sim.cluster.model import Device, Host, NetworkSpec

SCHEMES = ("bsp", "ssp", "asp", "gsp", "esync", "localsgd", "adpsgd")
"""One of each kind; the run's own comes first."""
ROUNDS = 20
EVENTS_MAX = 100_000
WORKERS_MAX = 2000


def forecasts_of(measured: Sequence[Measured], about: dict[str, Any]) -> list[Forecast]:
    """Returns samples a second under each scheme that can run there, the highest first; returns none for one worker
    and for more than `WORKERS_MAX`. `about` holds the scheme of the run, its number of servers, and parameters by
    scheme.
    """
    if not 2 <= len(measured) <= WORKERS_MAX:
        return []
    names = dict.fromkeys(filter(None, (about["scheme"], *SCHEMES)))
    found = [forecast for name in names if (forecast := _under(name, measured, about))]
    return sorted(found, key=lambda forecast: -forecast.rate)


def _under(name: str, measured: Sequence[Measured], about: dict[str, Any]) -> Forecast | None:
    """Returns the forecast of one scheme, or None where the scheme cannot run on that cluster.

    The simulation lasts as long as `ROUNDS` steps of the slowest worker, so each worker contributes, and stops
    after `EVENTS_MAX` events, so a fast worker beside a very slow one does not hold up the page.
    """
    servers = min(1, about["servers"])  # an exchange takes as long with one, and fewer events
    slowest, cluster = max(worker.step_s for worker in measured), cluster_of(measured, servers)
    try:
        work = LocalSteps(lambda rank, rng: cluster.step_s, samples=lambda rank: round(measured[rank].samples))
        scheme = _scheme(name, measured, about)
        sim = Simulation(scheme, Ghost(max(servers, 1)), work, cluster=cluster, watched=False)
        sim.run(until=ROUNDS * slowest, max_events=EVENTS_MAX)
    except PacelineError:
        return None  # not on such a cluster
    samples = sum(steps * measured[rank].samples for rank, steps in enumerate(sim.steps))
    family, is_own = scheme_catalogue.family_of(lookup(name)), name == about["scheme"]
    return Forecast(scheme=name, rate=samples / sim.now, kind=family, is_own=is_own)


def _scheme(name: str, measured: Sequence[Measured], about: dict[str, Any]) -> Scheme:
    """Returns the scheme with the run's own parameters. Raises PacelineError.

    Its groups are those of the run, without the workers that are not here. The simulation numbers its workers 0, 1, ...
    and has a host for each, so groups are written down even where the run found them by host.
    """
    sections = about.get("parameters", {})
    scheme = make(name, sections.get(name, {})).completed(sections, 0)
    if not isinstance(scheme, GSP | WithRankGroups):
        return scheme
    groups = scheme.written()
    if not groups and isinstance(scheme, WithRankGroups):
        groups = _groups_by_host(measured, about.get("workers", 0))
    number = {worker.rank: at for at, worker in enumerate(measured)}
    here = [tuple(number[rank] for rank in group if rank in number) for group in groups]
    if not (here := [group for group in here if group]):
        return scheme
    return dataclasses.replace(scheme, labels="", groups=written(tuple(here)))


def _groups_by_host(measured: Sequence[Measured], workers: int) -> Groups:
    """Returns the groups of `auto` as the run has them, which began with so many workers."""
    ranks = [worker.rank for worker in measured]
    hosts = [worker.host for worker in measured]
    if 1 < len(set(hosts)) < len(hosts):
        found = groups_by_place(hosts, (), len(hosts))
        return tuple(tuple(ranks[at] for at in group) for group in found)
    return groups_by_place((), (), max(workers, *(rank + 1 for rank in ranks)))


def cluster_of(measured: Sequence[Measured], servers: int) -> Cluster:
    """Returns every worker on a host of its own."""
    # An exchange has a way there and a way back. The smallest one contains the least waiting for others, so it is
    # the best estimate of the network alone.
    latency_s = min(worker.exchange_s for worker in measured) / 2
    hosts = [
        Host(name=f"worker-{rank}", devices=(Device(seconds=worker.step_s, jitter=_jitter(worker)),))
        for rank, worker in enumerate(measured)
    ]
    if servers:
        hosts.append(Host(name="servers", count=servers, servers=1))
    return Cluster(hosts=tuple(hosts), step_s=min(w.step_s for w in measured), network=NetworkSpec(latency_s=latency_s))


def _jitter(worker: Measured) -> float:
    """The sigma of a log-normal factor is about the coefficient of variation, while that is small."""
    return min(worker.spread_s / worker.step_s, 1.0)
