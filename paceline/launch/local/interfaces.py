"""Finds addresses of this machine: which one a name, an address or a network stands for."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Mapping

import psutil

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

INTERFACE_OF_NCCL = "NCCL_SOCKET_IFNAME"
"""The variable by which NCCL is told the interface that it shall use."""


def addresses() -> list[tuple[str, str]]:
    """Returns interface and address of every address of this machine, IPv4 first; IPv6 ones of a single link are left
    out."""
    found = [
        (name, entry.address)
        for family in (socket.AF_INET, socket.AF_INET6)
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == family
    ]
    return [(name, address) for name, address in found if not _is_of_one_link(address)]


def _is_of_one_link(address: str) -> bool:
    """Returns True for an IPv6 address that means something on one network only, and needs a zone elsewhere."""
    return ":" in address and ipaddress.IPv6Address(address).is_link_local


def resolve(wanted: str, flag: str = "--interface") -> str:
    """Returns the address of this machine that is meant: by a name such as eth0, an address, or a network such as
    10.0.0.0/8.

    Raises ConfigError with what there is.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(wanted.strip("[]")))
    there = addresses()
    try:
        network = ipaddress.ip_network(wanted, strict=False) if "/" in wanted else None
    except ValueError:
        raise ConfigError(f"{flag} {wanted}: is no network; write one as 10.0.0.0/8") from None
    for name, address in there:
        if (ipaddress.ip_address(address) in network) if network else name == wanted:
            return address
    if network:
        shown = ", ".join(address for _, address in there)
        raise ConfigError(f"{flag} {wanted}: no address of {socket.gethostname()} is in it; it has {shown}")
    names = sorted({name for name, _ in there})
    raise ConfigError(f"{flag} {wanted}: {socket.gethostname()} has no such interface{nearest(wanted, names)}")


def for_nccl(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables by which NCCL takes the interface that has `address`; it would listen on any otherwise.

    Returns {} where `environment` names an interface already, or where none has the address.
    """
    if INTERFACE_OF_NCCL in environment:
        return {}
    known = "127.0.0.1" if ipaddress.ip_address(address).is_loopback else address
    name = next((name for name, its in addresses() if its == known), "")
    return {INTERFACE_OF_NCCL: f"={name}"} if name else {}


def planned_towards(host: str) -> str:
    """Returns the same as `address_towards`, or words where that would look up a name, or where no way leads to
    `host`."""
    try:
        return address_towards(host if host == "localhost" else str(ipaddress.ip_address(host)))
    except (ValueError, ConfigError):
        return f"its address towards {host}"


def address_towards(host: str) -> str:
    """Returns the address of this machine from which packets to `host` leave. Raises ConfigError."""
    try:
        family, _, _, _, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(there)  # sends nothing
            return str(sock.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            f"no way to {host} ({error.strerror or error}); say with --interface where to listen"
        ) from None
