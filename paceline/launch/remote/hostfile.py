"""Parses the hosts file: on which machines a run may take place, and what each is good for.

    # name or address, the port of its sshd, then what there is to say
    gpu1            slots=2 gpus=0,1 group=fast speed=4
    gpu2:2222       slots=2 gpus=0,1 group=fast speed=4 user=ada python=/opt/paceline/bin/python
    gpu3            gpus=0-3 worker=node batch=96
    [fd00::7]       group=slow address=fd00:1::7
    store           role=server

    slots     workers that the host takes (1)
    gpus      of which devices: one a worker, in turn; without it a worker takes the GPU of its number, or the CPU
    worker    node: all GPUs of the line are those of one worker, a process each (paceline.join(group=...))
    batch     samples of the largest batch of each worker there, as its memory bounds it (any)
    group     a name; workers of hosts with one name are a group of gsp, tiers and halos
    speed     compared with the others (1); servers are put on fast hosts first
    role      worker, server or both (both)
    user      who logs in         python   interpreter there         folder   where the command is run there
    address   on which parties listen there, where it is not the one by which the host was reached

A file of bare addresses is MXNet's: a line that is repeated stands for several workers. Everything here is pure: no
file is opened and no name looked up.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

ROLES = ("both", "worker", "server")
"""What a host may be used for."""
EXAMPLE = "gpu1 slots=2 gpus=0,1 group=a"
"""A line of a hosts file, as errors show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """Describes a host. `slots` of 0: nothing was said. `port` of 0: that of the ssh configuration."""

    name: str
    port: int = 0
    slots: int = 0
    gpus: tuple[int, ...] = ()
    worker: str = ""
    batch: int = 0
    group: str = ""
    speed: float = 1.0
    role: str = "both"
    user: str = ""
    python: str = ""
    folder: str = ""
    address: str = ""

    def __str__(self) -> str:
        shown = f"[{self.name}]" if ":" in self.name and self.port else self.name
        return f"{shown}:{self.port}" if self.port else shown

    @property
    def bare(self) -> bool:
        """Returns True if nothing is said but where it is."""
        return dataclasses.replace(self, slots=0) == HostEntry(name=self.name, port=self.port)


def parse_hosts(text: str, source: str = "hosts") -> tuple[HostEntry, ...]:
    """Returns the hosts of a file, in its order. Raises ConfigError with the line and the way out."""
    found: dict[tuple[str, int], HostEntry] = {}
    said: dict[tuple[str, int], tuple[int, bool]] = {}  # line, and whether it was a bare one
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            host = _parse(words)
        except ValueError as error:
            raise ConfigError(f"{source}, line {number}: {error}") from None
        key, bare = (host.name, host.port), len(words) == 1
        if key not in found:
            found[key], said[key] = host, (number, bare)
        elif bare and said[key][1]:
            found[key] = dataclasses.replace(host, slots=max(1, found[key].slots) + 1)
        else:
            raise ConfigError(
                f"{source}, line {number}: {host} stands in line {said[key][0]} already: say slots=2 in one line"
            )
    if not found:
        raise ConfigError(f"{source} names no host: write one a line, such as {EXAMPLE!r}")
    return tuple(found.values())


def _parse(words: list[str]) -> HostEntry:
    """Returns the host of a line. Raises ValueError."""
    values: dict[str, Any] = {}
    for word in words[1:]:
        key, equals, text = word.partition("=")
        if key not in _READ:
            hint = nearest(key, _READ) if equals else f": write settings as key=value, such as {EXAMPLE!r}"
            raise ValueError(f"unknown {word!r}{hint}")
        if key in values:
            raise ValueError(f"{key} is given twice")
        try:
            values[key] = _READ[key](text)
        except ValueError as error:
            raise ValueError(f"{word}: {error}") from None
    if "worker" in values and ("gpus" not in values or values.get("slots", 1) > 1):
        raise ValueError("worker=node is one worker of all GPUs: write gpus=0-3 worker=node, without slots")
    name, port = _where(words[0])
    return HostEntry(name=name, port=port, **values)


def _where(text: str) -> tuple[str, int]:
    """Returns name and port of a host. Raises ValueError for a name that ssh or a shell could take for something
    else."""
    match = re.fullmatch(r"\[(?P<six>[^\]]+)\](:(?P<a>\d+))?|(?P<name>[^:\[\]]+)(:(?P<b>\d+))?", text)
    if match is None:
        try:
            return str(ipaddress.IPv6Address(text)), 0
        except ValueError:
            raise ValueError(f"{text!r} is no host: write name, name:port or [IPv6]:port") from None
    name = str(ipaddress.IPv6Address(match["six"])) if match["six"] else match["name"]
    if not re.fullmatch(r"[A-Za-z0-9_.:%][A-Za-z0-9_.:%-]*", name):
        raise ValueError(f"{name!r} is no name of a host")  # nor an option of ssh, nor a word for a shell
    port = int(match["a"] or match["b"] or 0)
    if port > 65535:
        raise ValueError(f"port {port}: there are 1 to 65535")
    return name, port


def _number(text: str) -> int:
    """Returns how many workers a host takes, or samples a batch. Raises ValueError."""
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise ValueError("a whole number from 1 to 10000")
    return int(text)


def _gpus(text: str) -> tuple[int, ...]:
    """Returns the GPUs that a host's workers use, in order. Raises ValueError."""
    if not re.fullmatch(r"\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?)*", text):
        raise ValueError("numbers of GPUs, such as 0,1 or 0-3")
    spans = [part.partition("-") for part in text.split(",")]
    return tuple(n for first, dash, last in spans for n in range(int(first), int(last if dash else first) + 1))


def _worker(text: str) -> str:
    """Returns what a worker of the host is. Raises ValueError for anything but a node."""
    if text != "node":
        raise ValueError("node, or leave it out")
    return text


def _speed(text: str) -> float:
    """Returns how fast a host is, relative to the others. Raises ValueError."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < 1e6:
        raise ValueError("a number above 0")
    return speed


def _role(text: str) -> str:
    """Returns what a host may be used for. Raises ValueError with the nearest word."""
    if text not in ROLES:
        raise ValueError(f"{' or '.join(ROLES)}{nearest(text, ROLES)}")
    return text


def _word(text: str) -> str:
    """Returns a word that is safe in a command and in a file. Raises ValueError."""
    if not re.fullmatch(r"[\w.:/~@+][\w.:/~@+-]*", text):
        raise ValueError("one word of letters, digits and ._-/~@+:")
    return text


def _address(text: str) -> str:
    """Returns an address. Raises ValueError for a name."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("an IPv4 or IPv6 address") from None


_READ: dict[str, Callable[[str], Any]] = {
    "slots": _number,
    "gpus": _gpus,
    "worker": _worker,
    "batch": _number,
    "group": _word,
    "speed": _speed,
    "role": _role,
    "user": _word,
    "python": _word,
    "folder": _word,
    "address": _address,
}


def slots_of(hosts: tuple[HostEntry, ...]) -> int:
    """Returns how many workers the hosts take as they are written."""
    return sum(_each(hosts))


def _each(hosts: tuple[HostEntry, ...]) -> Iterator[int]:
    """Yields the workers that each host takes."""
    for host in hosts:
        yield 0 if host.role == "server" else host.slots or 1
