"""A cluster that need not exist: hosts, their devices, the links between them, and what will happen to them.

    about = "two GPU generations"       # TOML; every key is a field of a class below
    step_s = 0.1                        # a step on the reference device, whose factor is 1
    [network]
    bandwidth_gbps = 25
    [[hosts]]
    name = "new"
    count = 2                           # two such hosts: new-0 and new-1
    servers = 1                         # on each
    [[hosts.devices]]                   # each device is a worker
    count = 4
    jitter = 0.05
    [[faults]]
    kind = "pause"
    at_s = 60
    for_s = 5
    hosts = ["new-1"]

Ranks and shards are counted through the hosts in their order. Everything that is drawn is drawn from the seed of the
simulation, from a stream of its own for each worker and purpose.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace

from paceline.core.errors import ConfigError


def need(holds: bool, what: str) -> None:
    """Raises ConfigError(what) unless it holds."""
    if not holds:
        raise ConfigError(what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """A co-tenant takes the device now and then: steps take `factor` times as long while it does.

    Gaps and lengths are exponential with the means `every_s` and `for_s`, in seconds. Raises ConfigError for values
    that mean nothing.
    """

    every_s: float
    for_s: float
    factor: float = 2.0

    def __post_init__(self) -> None:
        need(self.every_s > 0 and self.for_s > 0, "bursts need every_s > 0 and for_s > 0")
        need(self.factor >= 1, "bursts.factor must be 1 or more: how many times slower a step is")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """`count` equal devices, each a worker. What a step takes on it, in the order in which it is put together:

    factor: times the step of the reference device; or seconds: outright; or trace: seconds of recorded steps, played
    from a drawn place, again and again. jitter: sigma of a log-normal factor with mean 1, drawn for every step.
    drift_per_hour: fraction by which steps get longer in an hour of the run. bursts: of a co-tenant.

    cpu_s: core seconds of a step, of `threads` threads, where messages cost or a host has `cores`. A step is over when
    these and its own seconds are.
    """

    name: str = "device"
    count: int = 1
    factor: float = 1.0
    seconds: float = 0.0
    trace: tuple[float, ...] = ()
    jitter: float = 0.0
    drift_per_hour: float = 0.0
    bursts: Bursts | None = None
    cpu_s: float = 0.0
    threads: int = 1

    def __post_init__(self) -> None:
        need(self.count >= 1, f"{self.name}: count must be 1 or more")
        need(
            0 <= self.cpu_s < math.inf and self.threads >= 1, f"{self.name}: cpu_s must be 0 or more, threads 1 or more"
        )
        need(0 < self.factor < math.inf, f"{self.name}: factor must be positive")
        need(0 <= self.seconds < math.inf, f"{self.name}: seconds must be positive")
        need(all(0 < s < math.inf for s in self.trace), f"{self.name}: a recorded step must take positive seconds")
        given = [self.factor != 1, self.seconds > 0, bool(self.trace)]
        need(sum(given) <= 1, f"{self.name}: give only one of factor, seconds and trace")
        need(0 <= self.jitter <= 5, f"{self.name}: jitter must lie between 0 and 5")
        need(self.drift_per_hour >= 0, f"{self.name}: drift_per_hour must be 0 or more")

    def step_s(self, reference_s: float) -> float:
        """Returns what a step takes on average before drift and bursts."""
        if self.trace:
            return sum(self.trace) / len(self.trace)
        return self.seconds or self.factor * reference_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Workers are taken away without notice and come back as newcomers.

    Presence and absence last exponential times of the means `life_s` and `away_s`; or `times_s` says when each ends.
    """

    life_s: float = math.inf
    away_s: float = 60.0
    times_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        need(self.life_s > 0 and self.away_s > 0, "spot: life_s and away_s must be positive")
        need(bool(self.times_s) != (self.life_s < math.inf), "spot: give either life_s or times_s")
        need(list(self.times_s) == sorted(self.times_s), "spot: times_s must be in order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`count` equal hosts. All that is on a host shares its network card; each host may hold `servers` servers.

    bandwidth_gbps: of the card, 0 for the network's; latency_s: on top of the network's, each way.
    joins_at_s, leaves_at_s: when its workers come and when they go. cores: shared by all on the host; 0 where nobody
    waits for one.
    """

    name: str = "host"
    count: int = 1
    site: str = "site"
    devices: tuple[Device, ...] = ()
    servers: int = 0
    bandwidth_gbps: float = 0.0
    latency_s: float = 0.0
    joins_at_s: float = 0.0
    leaves_at_s: float = math.inf
    spot: Spot | None = None
    cores: int = 0

    def __post_init__(self) -> None:
        need(self.count >= 1, f"{self.name}: count must be 1 or more")
        need(self.cores >= 0, f"{self.name}: cores must be 0 or more")
        need(self.servers >= 0, f"{self.name}: servers must be 0 or more")
        need(bool(self.devices) or self.servers > 0, f"{self.name}: needs [[hosts.devices]] or servers")
        need(self.bandwidth_gbps >= 0 and self.latency_s >= 0, f"{self.name}: bandwidth and latency must be positive")
        need(0 <= self.joins_at_s < self.leaves_at_s, f"{self.name}: joins_at_s must come before leaves_at_s")
        moves = self.spot is not None or self.joins_at_s > 0 or self.leaves_at_s < math.inf
        need(bool(self.devices) or not moves, f"{self.name}: spot, joins_at_s and leaves_at_s are for hosts of workers")

    @property
    def workers(self) -> int:
        """Returns the number of workers on each copy of this host."""
        return sum(device.count for device in self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSpec:
    """Describes the network: a non-blocking switch in each site; each card moves one message at a time each way.

    incast: a message that finds others before it at the receiver's card takes that fraction longer to take in.
    local_*: between parties on one host.
    """

    latency_s: float = 1e-4
    bandwidth_gbps: float = 10.0
    incast: float = 0.0
    local_latency_s: float = 2e-5
    local_bandwidth_gbps: float = 40.0

    def __post_init__(self) -> None:
        for latency_s, gbps in (
            (self.latency_s, self.bandwidth_gbps),
            (self.local_latency_s, self.local_bandwidth_gbps),
        ):
            good = 0 <= latency_s < math.inf and gbps > 0
            need(good, f"no network has a latency of {latency_s} s and a bandwidth of {gbps} Gbit/s")
        need(self.incast >= 0, "network.incast must be 0 or more")


PASS = 2
"""A pass over a vector (two are read, one is written) by the vector's part of a server's cost for one message.

An update is about one pass, and a server takes in one message and sends another for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCosts:
    """Core seconds that a message with vectors costs beside its way: a fixed part, and one for each megabyte (10^6).

    worker_*  of each that a worker sends or takes in
    server_*  of each that a server takes in or sends, the update included: one after the other
    """

    worker_s: float = 0.0
    worker_s_per_mb: float = 0.0
    server_s: float = 0.0
    server_s_per_mb: float = 0.0

    def __post_init__(self) -> None:
        for name in ("worker_s", "worker_s_per_mb", "server_s", "server_s_per_mb"):
            need(0 <= getattr(self, name) < math.inf, f"messages.{name} must be 0 or more")

    @property
    def pass_s_per_mb(self) -> float:
        """Returns the core seconds of a pass over vectors, for each megabyte that it writes."""
        return PASS * self.server_s_per_mb


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The line between two sites, shared by all that goes the same way.

    between         the two sites, in any order; both directions have the same speed
    latency_s       seconds on top of the latency of both cards
    bandwidth_gbps  Gbit/s in each direction
    """

    between: tuple[str, ...]
    latency_s: float
    bandwidth_gbps: float

    def __post_init__(self) -> None:
        need(len(set(self.between)) == 2, "a link lies between two sites: between = ['a', 'b']")
        need(self.latency_s >= 0 and self.bandwidth_gbps > 0, "a link needs latency_s >= 0 and bandwidth_gbps > 0")


SERVERS_KEEP = ("all", "replica", "snapshot")
"""What a server that crashed may go on from: `Hazards.servers_keep` says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazards:
    """Every message between two processes is lost, comes twice, or comes up to `late_s` late (and so out of order) with
    these probabilities. It is sent again until it is acknowledged. With hazards, news of who takes part travels by
    messages too, and a worker may be declared dead that is not.

    servers_keep: what a server that crashes goes on from. all: from what it had acknowledged. Else it is lost with all
    it holds and another process takes its place, as in a live run: replica: from its copy on the next server, with
    which nothing is lost; snapshot: all servers go back to the newest one, and at most the updates of the last
    `snapshot_every_s` are undone. Schemes that cannot go back keep all.
    """

    lost: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    late_s: float = 0.1
    servers_keep: str = "all"
    snapshot_every_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("lost", "repeated", "late"):
            need(0 <= getattr(self, name) <= 0.9, f"hazards.{name} must lie between 0 and 0.9")
        need(0 <= self.late_s < math.inf, "hazards.late_s must be 0 or more")
        known = ", ".join(SERVERS_KEEP)
        need(self.servers_keep in SERVERS_KEEP, f"hazards.servers_keep = {self.servers_keep!r}; there are {known}")
        need(0 < self.snapshot_every_s < math.inf, "hazards.snapshot_every_s must be positive")


FAULTS = ("crash", "restart", "leave", "join", "pause", "clog", "partition", "slow-disk", "lie", "bad-results")
"""Kinds of faults that any cluster may have."""
OF_HAZARDS = ("mute", "deaf", "reset", "clock-step", "disk-full", "torn-write", "drain")
"""Kinds of faults that need a table `[hazards]`, since they concern processes and what these have acknowledged."""
LASTING = ("pause", "clog", "partition", "slow-disk", "mute", "deaf", "disk-full", "torn-write")
"""Kinds that need `for_s`, because they end by themselves."""
OF_WORKERS = ("restart", "leave", "join", "slow-disk", "lie", "bad-results", "drain")
"""Kinds that hit workers only; servers on the same host are left alone."""
MAY_LAST = ("crash", "lie", "bad-results")
"""Kinds for which `for_s` is optional: without it they last until the end of the run."""
OF_SERVERS = ("disk-full", "torn-write")
"""Kinds that hit servers only."""
PARTIES_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens at `at_s`, to the workers named by rank, host or site (`servers` of the hosts are hit too).

    crash      the worker is gone without goodbye; noticed after `suspect_after_s`; comes back after `for_s`, if given
    restart    the worker loses all that is under way; what it must keep survives. With `hazards` its process ends, and
               another one starts at once
    leave      the worker leaves where it would begin its next step
    join       the worker comes (back)
    pause      nothing on the host moves for `for_s`
    clog       the host's card neither sends nor takes in for `for_s`
    partition  `sites` are cut off from the others for `for_s`; past `suspect_after_s` their workers count as crashed
    slow-disk  every step on the host takes `extra_s` longer, for `for_s`
    lie        one message of the worker in `one_in` has hostile scalars (`lying_worker.py`), for `for_s`, if given
    bad-results  one result of the worker in `one_in` is NaN (`bad_results.py`), for `for_s`, if given

    Those that need `hazards`, with which servers crash too, for `for_s`, and go on from what `servers_keep` says; and
    with which a worker that is silent for longer than `suspect_after_s` is declared dead though it lives:

    mute, deaf the hosts are not heard, or hear nothing, for `for_s`
    reset      what is on its way to and from the hosts is lost
    clock-step the hosts' clocks jump ahead by `extra_s`
    disk-full  the hosts' servers can take nothing for `for_s`
    torn-write the hosts' servers crash, for `for_s`, while they write down the next message
    drain      the worker leaves like that, its process ends at once, and it does not come back (live: SIGTERM)
    """

    kind: str
    at_s: float
    for_s: float = 0.0
    extra_s: float = 0.0
    one_in: int = 1
    workers: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = FAULTS + OF_HAZARDS
        need(self.kind in known, f"faults.kind = {self.kind!r}; there are {', '.join(known)}")
        need(self.at_s >= 0 and self.for_s >= 0, f"{self.kind}: at_s and for_s must be 0 or more")
        need(bool(self.workers or self.hosts or self.sites), f"{self.kind}: give workers, hosts or sites")
        need(self.for_s > 0 or self.kind not in LASTING, f"{self.kind}: give for_s, how long it lasts")
        need(not self.for_s or self.kind in (*MAY_LAST, *LASTING), f"{self.kind} is over at once: leave out for_s")
        need(self.extra_s > 0 or self.kind != "slow-disk", "slow-disk: give extra_s, seconds a step takes longer")
        need(self.extra_s > 0 or self.kind != "clock-step", "clock-step: give extra_s, seconds the clock jumps ahead")
        need(not self.extra_s or self.kind in ("slow-disk", "clock-step"), f"{self.kind}: extra_s means nothing here")
        need(bool(self.sites) or self.kind != "partition", "partition: give sites, those cut off")
        need(self.one_in == 1 or self.kind in ("lie", "bad-results"), f"{self.kind}: one_in means nothing here")
        need(self.one_in >= 1, f"{self.kind}: one_in must be 1 or more: of so many one is bad")

    def names(self, placement: DevicePlacement) -> bool:
        """Returns True if the fault names that place's host or site. (`workers` names workers by rank.)"""
        return bool({placement.host.name, placement.host_name} & set(self.hosts)) or placement.host.site in self.sites


@dataclass(frozen=True, slots=True)
class DevicePlacement:
    """Says where a worker or a server runs: on copy number `copy` of `host`, a worker on `device`."""

    host: Host
    copy: int
    device: Device | None = None

    @property
    def host_name(self) -> str:
        """Returns the host's name, with the number of the copy where there are several: `new-0`, `new-1`."""
        return f"{self.host.name}-{self.copy}" if self.host.count > 1 else self.host.name


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster to simulate.

        step_s           seconds of a step of the model on the reference device, with the worker's own batch
        suspect_after_s  a party that is silent for so many seconds is declared lost
        skew_s           every party's clock is off by up to so many seconds, either way
        links            between sites; two sites without a link are joined by their cards alone
        messages         what they cost the processes, if that counts

    Raises ConfigError, in one line that names the table, for a cluster that cannot exist or a fault without effect.
    """

    hosts: tuple[Host, ...]
    name: str = ""
    about: str = ""
    step_s: float = 1.0
    suspect_after_s: float = 10.0
    skew_s: float = 0.0
    network: NetworkSpec = field(default_factory=NetworkSpec)
    links: tuple[Link, ...] = ()
    faults: tuple[Fault, ...] = ()
    hazards: Hazards | None = None
    messages: MessageCosts | None = None

    def __post_init__(self) -> None:
        need(any(host.devices for host in self.hosts), "a cluster needs a worker: add [[hosts.devices]]")
        need(
            self.step_s > 0 and self.suspect_after_s > 0 and self.skew_s >= 0,
            "step_s and suspect_after_s must be positive",
        )
        shared = self.shares_cores
        need(not shared or self.hazards is None, "leave out [hazards]: hosts with cores and [messages] know none")
        for fault in self.faults:
            need(not shared or fault.kind not in LASTING, f"{fault.kind}: not with cores of hosts or [messages]")
        parties = self.workers + self.servers
        need(parties <= PARTIES_MAX, f"{parties} workers and servers: a cluster has {PARTIES_MAX} at most")
        # Each host has its own name, and a host with copies also the name of each copy. If fewer names are found than
        # that, two of them were equal, and a fault could not say which it means.
        names, sites = self.host_names(), {host.site for host in self.hosts}
        hosts = sum(1 if host.count == 1 else host.count + 1 for host in self.hosts)
        need(len(names) == hosts, "two hosts have the same name")
        ways = {frozenset(link.between) for link in self.links}
        need(len(ways) == len(self.links), "two links join the same sites: one carries both directions")
        for link in self.links:
            need(set(link.between) <= sites, f"a link between {' and '.join(link.between)}: no such site")
        for fault in self.faults:
            need(self.hazards is not None or fault.kind not in OF_HAZARDS, f"{fault.kind}: add a table [hazards]")
            unknown = [*(set(fault.hosts) - names), *(set(fault.sites) - sites)]
            unknown += [f"worker {rank}" for rank in fault.workers if not 0 <= rank < self.workers]
            need(not unknown, f"{fault.kind} at {fault.at_s:g} s: this cluster has no {', '.join(map(str, unknown))}")
            why = self._why_harmless(fault)
            need(not why, f"{fault.kind} at {fault.at_s:g} s: {why}")

    def _why_harmless(self, fault: Fault) -> str:
        """Returns why nothing would come of `fault`, or "" if something would.

        A fault without effect is an error of the user's: a run that passes it would prove nothing.
        """
        if fault.kind == "partition" and {host.site for host in self.hosts} <= set(fault.sites):
            return "no site is left to be cut off from"
        workers = bool(fault.workers) or any(map(fault.names, self.worker_placements()))
        servers = any(map(fault.names, self.server_placements()))
        if fault.kind in OF_SERVERS:
            return "" if servers else "no server is there, and it is for servers"
        if fault.kind == "crash" and not workers and self.hazards is None:
            return "no worker is there; servers crash in a cluster with a table [hazards]"
        if fault.kind in OF_WORKERS and not workers:
            return "no worker is there, and it is for workers"
        return ""

    @property
    def shares_cores(self) -> bool:
        """Returns True if steps and messages take core seconds, which may be waited for."""
        return self.messages is not None or any(host.cores for host in self.hosts)

    @functools.cached_property  # asked at every event of some runs
    def workers(self) -> int:
        """Returns the number of workers: of all devices on all copies of all hosts."""
        return sum(host.count * host.workers for host in self.hosts)

    @functools.cached_property  # asked at every event of some runs
    def servers(self) -> int:
        """Returns the number of servers on all copies of all hosts."""
        return sum(host.count * host.servers for host in self.hosts)

    def host_names(self) -> set[str]:
        """Returns every name by which a fault may name a host: `new` for all copies, and `new-0`, `new-1` for single
        ones."""
        copies = {f"{host.name}-{n}" for host in self.hosts if host.count > 1 for n in range(host.count)}
        return copies | {host.name for host in self.hosts}

    def worker_placements(self) -> list[DevicePlacement]:
        """Returns the place of each worker, by rank."""
        return [
            DevicePlacement(host, copy, device)
            for host in self.hosts
            for copy in range(host.count)
            for device in host.devices
            for _ in range(device.count)
        ]

    def server_placements(self) -> list[DevicePlacement]:
        """Returns the place of each server, by shard."""
        return [DevicePlacement(host, n) for host in self.hosts for n in range(host.count) for _ in range(host.servers)]

    def seconds_per_step(self) -> tuple[float, ...]:
        """Returns, by rank, the seconds of a step without jitter, as a measurement before the start would find it."""
        return tuple(placement.device.step_s(self.step_s) for placement in self.worker_placements() if placement.device)

    def without_servers(self) -> Cluster:
        """Returns the same workers without servers, for schemes on collectives alone.

        Hosts that held servers only vanish, and so do their links and what is left without effect of the faults.
        """
        hosts = tuple(replace(host, servers=0) for host in self.hosts if host.devices)
        sites = {host.site for host in hosts}
        links = tuple(link for link in self.links if set(link.between) <= sites)
        left = replace(self, hosts=hosts, faults=(), links=links)
        return replace(left, faults=tuple(filter(None, map(left._adopted, self.faults))))

    def _adopted(self, fault: Fault) -> Fault | None:
        """Returns what is left of a fault of a larger cluster, or None if it would have no effect."""
        names, sites = self.host_names(), {host.site for host in self.hosts}
        hosts = tuple(host for host in fault.hosts if host in names)
        cut = tuple(site for site in fault.sites if site in sites)
        if not (fault.workers or hosts or cut) or (fault.sites and not cut and fault.kind == "partition"):
            return None
        fault = replace(fault, hosts=hosts, sites=cut)
        return None if self._why_harmless(fault) else fault


def uniform(
    workers: int,
    servers: int = 1,
    *,
    latency_s: float = 1e-4,
    bandwidth_gbps: float = 10.0,
    skew_s: float = 0.0,
    factors: tuple[float, ...] = (),
) -> Cluster:
    """Returns a cluster with every party on a host of its own, all alike but for the workers' `factors`.

    Where a `Simulation` is given the arguments of this function, a step takes the seconds that its work returns,
    times the factor. Latency is seconds from card to card. Raises ConfigError unless there is one factor for each
    worker, or none.
    """
    if factors:
        need(len(factors) == workers, f"{len(factors)} factors for {workers} workers")
        hosts = [Host(name=f"worker-{r}", devices=(Device(factor=f),)) for r, f in enumerate(factors)]
    else:
        hosts = [Host(name="workers", count=workers, devices=(Device(),))]
    if servers:
        hosts.append(Host(name="servers", count=servers, servers=1))
    network = NetworkSpec(latency_s=latency_s, bandwidth_gbps=bandwidth_gbps)
    return Cluster(hosts=tuple(hosts), skew_s=skew_s, network=network)
