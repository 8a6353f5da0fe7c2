"""Addresses of this machine: which one a name, an address or a network stands for.

Standard library only: IPv4 addresses by the kernel's list of configured ones, IPv6 from /proc. Linux.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

SIOCGIFCONF = 0x8912
_ENTRY_BYTES = 40  # of struct ifreq on 64-bit Linux: 16 of name, then the address
_LINK_LOCAL_SCOPE = 0x20
INTERFACE_OF_NCCL = "NCCL_SOCKET_IFNAME"


def addresses() -> list[tuple[str, str]]:
    """Interface and address, of every address of this machine but IPv6 ones that hold on one link only."""
    if sys.platform != "linux":
        raise ConfigError(f"interfaces are listed on Linux only, this is {sys.platform}: give an address")
    return _four() + _six()


def _four() -> list[tuple[str, str]]:
    room = array.array("B", bytes(_ENTRY_BYTES * 256))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("iL", len(room), room.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(sock, SIOCGIFCONF, request))[0]
    data = room.tobytes()[:used]
    entries = (data[at : at + _ENTRY_BYTES] for at in range(0, len(data), _ENTRY_BYTES))
    return [(entry[:16].rstrip(b"\0").decode().partition(":")[0], socket.inet_ntoa(entry[20:24])) for entry in entries]


def _six() -> list[tuple[str, str]]:
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            number, _, _, scope, _, name = line.split()
            if int(scope, 16) != _LINK_LOCAL_SCOPE:
                found.append((name, str(ipaddress.IPv6Address(int(number, 16)))))
    return found


def resolve(wanted: str, flag: str = "--interface") -> str:
    """The address of this machine that is meant: by a name such as eth0, an address, or a network such as 10.0.0.0/8.

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
    """What NCCL, which else listens where it likes, needs in `environment` to take the interface that has `address`.

    Nothing where somebody has said there already which one, or where none has it.
    """
    if INTERFACE_OF_NCCL in environment or sys.platform != "linux":
        return {}
    known = "127.0.0.1" if ipaddress.ip_address(address).is_loopback else address
    name = next((name for name, its in addresses() if its == known), "")
    return {INTERFACE_OF_NCCL: f"={name}"} if name else {}


def planned_towards(host: str) -> str:
    """Returns the same as `address_towards`, in words where that would look up a name, or there is no way to `host`."""
    try:
        return address_towards(host if host == "localhost" else str(ipaddress.ip_address(host)))
    except (ValueError, ConfigError):
        return f"its address towards {host}"


def address_towards(host: str) -> str:
    """The address of this machine from which packets to `host` leave. Raises ConfigError."""
    try:
        family, _, _, _, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(there)  # sends nothing
            return str(sock.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            f"no way to {host} ({error.strerror or error}); say with --interface where to listen"
        ) from None
