"""The CPUs of this machine: which of them a process may use, and which share a core or a NUMA node.

    CPU     what Linux schedules on, a hardware thread; it has a number
    core    has one CPU, or several with SMT, which share its arithmetic
    node    cores that reach one part of the memory fastest; often a socket

Linux tells it in /sys/devices/system (Documentation/admin-guide/cputopology.rst). Where it does not, as in some
containers, each CPU counts as a core of its own, and all are on one node.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import ConfigError

SYSTEM = Path("/sys/devices/system")
AUTO, NONE = "auto", "none"
CPU_MAX = 1 << 16
"""No machine has a CPU with a higher number."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """Describes one CPU: its number, the core that it is a part of, and the node of that core."""

    number: int
    core: int
    node: int = 0


def allowed_cpus() -> frozenset[int]:
    """Returns the numbers of the CPUs that this process may use, by its affinity and its control group.

    It is empty where the system does not say, as on macOS and Windows.
    """
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def read_topology(allowed: Collection[int], system: Path = SYSTEM) -> tuple[Cpu, ...]:
    """Returns those of the `allowed` CPUs that are online, by number. The number of a core is that of its first CPU."""
    online = _listed(system / "cpu" / "online") or frozenset(allowed)
    node_of: dict[int, int] = {}
    for folder in sorted((system / "node").glob("node[0-9]*")):
        number = int(folder.name.removeprefix("node"))
        node_of |= dict.fromkeys(_listed(folder / "cpulist"), number)
    found = []
    for cpu in sorted(online & frozenset(allowed)):
        folder = system / "cpu" / f"cpu{cpu}" / "topology"
        siblings = _listed(folder / "core_cpus_list") or _listed(folder / "thread_siblings_list")
        found.append(Cpu(cpu, core=min(siblings | {cpu}), node=node_of.get(cpu, 0)))
    return tuple(found)


def _listed(file: Path) -> frozenset[int]:
    """Returns the CPUs that a file of the system lists; none where it cannot be read."""
    try:
        return parse_cpus(file.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return frozenset()


# ---- lists of CPUs as text: 0-3,8 --------------------------------------------------------------------------------
def parse_cpus(text: str) -> frozenset[int]:
    """Returns the CPUs of a list such as `0-3,8`, as taskset and numactl write it. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < CPU_MAX:
            raise ValueError(f"{part!r} is no range of CPUs")
        found.update(range(low, high + 1))
    return frozenset(found)


def written_cpus(cpus: Iterable[int]) -> str:
    """Returns the shortest list of these CPUs: `0-3,8`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


def parse_binding(text: str) -> tuple[frozenset[int], ...]:
    """Returns the sets of CPUs of --bind-cores: none for `auto` and `none`, one for all workers, or one for each.

    Raises ConfigError, with the way out.
    """
    if text in (AUTO, NONE):
        return ()
    try:
        return tuple(map(parse_cpus, text.split("/")))
    except ValueError:
        raise ConfigError(
            "give auto, none, CPUs for all workers (0-7,16), or CPUs for each worker of a host (0-3/4-7)"
        ) from None


def check_binding(text: str) -> None:
    """Raises ConfigError for what --bind-cores cannot be."""
    parse_binding(text)
