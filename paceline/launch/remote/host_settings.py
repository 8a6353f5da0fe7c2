"""Interprets a hosts file for a run: which hosts are used, where processes listen, and what becomes a setting."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from paceline.config.group_names import with_ranks
from paceline.core.errors import ConfigError
from paceline.core.scheme import lookup, names, types_of
from paceline.launch.local.interfaces import address_towards, planned_towards, resolve
from paceline.launch.remote.hostfile import HostEntry, parse_hosts
from paceline.launch.remote.placement import Placement
from paceline.launch.remote.ssh import Ssh
from paceline.live.addresses import is_loopback


def hosts_of(path: str | None) -> tuple[HostEntry, ...]:
    """Returns the hosts of that file; () where none is named. Raises ConfigError."""
    if path is None:
        return ()
    try:
        return parse_hosts(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise ConfigError(f"--hosts {path}: {why}") from None


def only_used(placed: Placement, workers: int, servers: int) -> Placement:
    """Returns the placement without hosts that have nothing to do, so that nobody logs in there."""
    hosts = tuple(placed.hosts[number] for number in placed.used())
    number = {old: new for new, old in enumerate(placed.used())}
    return Placement(
        hosts=hosts,
        workers=tuple(number[host] for host in placed.workers),
        slots=placed.slots,
        servers=tuple(number[host] for host in placed.servers),
    )


def listens_on(
    interface: str | None, ssh: Ssh, placement: Placement, cluster: dict[str, Any], *, dry_run: bool = False
) -> str:
    """Returns the address of this machine by which the hosts reach it; for a dry run perhaps words."""
    if interface:
        return resolve(interface)
    if "bind" in cluster:
        return str(cluster["bind"])
    for host in placement.hosts:
        asks_ssh = not dry_run or shutil.which("ssh") is not None
        if not is_loopback(address := ssh.address_of(host) if asks_ssh else host.name):
            return planned_towards(address) if dry_run else address_towards(address)
    return "127.0.0.1"


def is_address(text: str | None) -> bool:
    """Returns True for an address, False for the name of an interface or a network."""
    return text is not None and "/" not in text and any(sign in text for sign in ".:")


def fit(values: dict[str, Any], placement: Placement, bind: str) -> None:
    """Turns what the hosts file says into settings, where the user has not said otherwise."""
    cluster = values["cluster"]
    cluster["bind"] = bind
    ranks = range(len(placement.workers))
    if "device" not in cluster and any(host.gpus for host in placement.hosts):
        cluster["device"] = ",".join(placement.device_of(rank) for rank in ranks)
    if "ranks" not in cluster and any(host.worker for host in placement.hosts):
        cluster["ranks"] = ",".join(str(placement.ranks_of(rank)) for rank in ranks)
    if "batch_limits" not in cluster and any(placement.batch_limits()):
        cluster["batch_limits"] = list(placement.batch_limits())
    on = [placement.hosts[host] for host in placement.workers]
    values.update(with_ranks(values, {"hosts": [host.name for host in on], "labels": [host.group for host in on]}))
    for name in names() if placement.groups() else ():
        own = values.get(name, {})
        if {"groups", "labels"} <= types_of(lookup(name)).keys() and not {"groups", "labels"} & own.keys():
            values.setdefault(name, {})["groups"] = placement.groups()
