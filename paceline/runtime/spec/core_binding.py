"""Divides the CPUs of a host among the workers that run there (`--bind-cores`), and binds a process to its part.

    as many cores as workers, or more   each worker has whole cores of one NUMA node; of several whole nodes only where
                                        it wants more CPUs than one has
    fewer cores than workers            each has a CPU at least, and every core has a worker
    fewer CPUs than workers             nobody is bound: the system balances better than any fixed part could

A worker's part is a fair one, by the CPUs that it wants (`--threads` times `--ranks`), and not only as many as it
wants: its processes that load data, its thread for the network and its ranks inherit it. Servers and the evaluator are
not bound.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.live.cpu_topology import NONE, Cpu, allowed_cpus, parse_binding, read_topology, written_cpus
from paceline.runtime.spec.process_spec import ProcessSpec

Part = frozenset[int]
"""The CPUs of one worker; empty for one that is not bound."""


SHOWN = 8
"""How many workers of a host a line of `binding_notes` names."""
CORES = "cores of"
"""How such a line begins."""


def plan_cores(cpus: Sequence[Cpu], wanted: Sequence[int]) -> list[Part]:
    """Returns the CPUs of each worker. `cpus`: all that they may use; `wanted`: how many each would use."""
    cpus = sorted(cpus, key=lambda cpu: (cpu.node, cpu.core, cpu.number))
    if len(cpus) < len(wanted):
        return [frozenset()] * len(wanted)
    cores = [[cpu.number for cpu in core] for _, core in groupby(cpus, key=lambda cpu: (cpu.node, cpu.core))]
    node_of = {cpu.number: cpu.node for cpu in cpus}
    # Of fewer cores than workers some have several, so single CPUs are dealt, those of a core one after the other.
    units = cores if len(cores) >= len(wanted) else [[cpu.number] for cpu in cpus]
    nodes = [list(units_of) for _, units_of in groupby(units, key=lambda unit: node_of[unit[0]])]
    members = _spread([len(node) for node in nodes], wanted)
    parts: list[set[int]] = [set() for _ in wanted]
    for node, ranks in zip(nodes, members, strict=True):
        sizes = _divide(len(node), [wanted[rank] for rank in ranks])
        at = 0
        for rank, size in zip(ranks, sizes, strict=True):
            parts[rank].update(*node[at : at + size])
            at += size
    for node, ranks in zip(nodes, members, strict=True):
        if not ranks:  # nobody needs it, unless somebody wants more than there is on its own
            rank = min(range(len(wanted)), key=lambda rank: (len(parts[rank]) / wanted[rank], rank))
            if len(parts[rank]) < wanted[rank]:
                parts[rank].update(*node)
    return [frozenset(part) for part in parts]


def _spread(sizes: Sequence[int], wanted: Sequence[int]) -> list[list[int]]:
    """Returns the workers of each node: each goes where the least is wanted of a core, while there is one for it."""
    members: list[list[int]] = [[] for _ in sizes]
    load = [0] * len(sizes)
    for rank, count in enumerate(wanted):
        free = [node for node, size in enumerate(sizes) if len(members[node]) < size]
        node = min(free, key=lambda node: ((load[node] + count) / sizes[node], len(members[node]), node))
        members[node].append(rank)
        load[node] += count
    return members


def _divide(units: int, wanted: Sequence[int]) -> list[int]:
    """Returns how many of `units` each gets: one, and the others where the least is there for what is wanted."""
    sizes = [1] * len(wanted)
    for _ in range(units - len(wanted) if wanted else 0):
        poorest = min(range(len(wanted)), key=lambda i: (sizes[i] / wanted[i], i))
        sizes[poorest] += 1
    return sizes


def parts_of_host(config: Config, ranks: Sequence[int], cpus: Sequence[Cpu]) -> list[Part]:
    """Returns the CPUs of the workers of one host, whose `ranks` are in the order of their slots.

    `cpus`: those that processes of this host may use. Raises ConfigError where --bind-cores asks for others, or names
    fewer sets than there are workers.
    """
    text = config.cluster.bind_cores
    if text == NONE:
        return [frozenset()] * len(ranks)
    if not cpus:
        raise ConfigError(f"--bind-cores {text}: this system binds no process to CPUs; leave it out")
    told, there = parse_binding(text), frozenset(cpu.number for cpu in cpus)
    if beyond := frozenset().union(*told) - there:
        raise ConfigError(
            f"--bind-cores {text}: a process may use CPUs {written_cpus(there)} here, and not {written_cpus(beyond)}"
        )
    if len(told) > 1:
        if len(told) < len(ranks):
            raise ConfigError(f"--bind-cores {text}: it has {len(told)} sets of CPUs for the {len(ranks)} workers here")
        return list(told[: len(ranks)])
    within = [cpu for cpu in cpus if not told or cpu.number in told[0]]
    parts = plan_cores(within, [config.cluster.threads * config.ranks_of(rank) for rank in ranks])
    return [part or (told[0] if told else part) for part in parts]


def binding_notes(workers: Mapping[int, tuple[str, Part]]) -> list[str]:
    """Returns a line for each host: which CPUs its workers have. `workers`: host and CPUs of each, by rank."""
    lines = []
    for host in dict.fromkeys(host for host, _ in workers.values()):
        parts = {rank: part for rank, (at, part) in sorted(workers.items()) if at == host}
        if len(parts) > 1 and len(set(parts.values())) == 1:
            (part,) = set(parts.values())
            lines.append(f"{CORES} {host}: all {len(parts)} workers share CPUs {written_cpus(part)}")
            continue
        shown = [f"worker {rank} has {written_cpus(part)}" for rank, part in parts.items()]
        more = f"; {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
        lines.append(f"{CORES} {host}: {'; '.join(shown[:SHOWN])}{more}")
    return lines


def check_host(config: Config, ranks: Iterable[int]) -> None:
    """Raises ConfigError where the workers with these ranks cannot be bound on this host as the command says."""
    if config.cluster.bind_cores != NONE:
        parts_of_host(config, list(ranks), read_topology(allowed_cpus()))


def part_of(spec: ProcessSpec) -> Part:
    """Returns the CPUs of the process of `spec` on this host; empty where it is not bound. Raises ConfigError."""
    config = spec.config
    if config.cluster.bind_cores == NONE or spec.who.kind != "worker":
        return frozenset()
    ranks = spec.neighbours or range(spec.workers)
    if spec.who.index not in ranks:  # it has moved here from a host that was lost, and the cores are the others'
        return frozenset()
    return parts_of_host(config, ranks, read_topology(allowed_cpus()))[ranks.index(spec.who.index)]


def bind(part: Collection[int]) -> None:
    """Binds this process, and what it starts from now on, to these CPUs; to none where the set is empty.

    A CPU may go offline at any time, so a failure is none: the first lines of the run say where each worker is.
    """
    if part:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, part)
