"""Counts the traffic of sockets that a library opened inside this process, as the kernel counted it. Linux only.

torch.distributed does not say how much it sends. The sockets that are open after it has connected, and were not
before, are taken for its own.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

TCP_INFO_BYTES = 192
BYTES_ACKED_AT = 120  # two 64-bit counters of struct tcp_info: bytes acknowledged, then bytes received


def open_sockets() -> set[int]:
    """Returns the descriptors of this process's sockets; an empty set where there is no /proc."""
    found = set()
    try:
        for entry in Path("/proc/self/fd").iterdir():
            try:
                if os.readlink(entry).startswith("socket:"):
                    found.add(int(entry.name))
            except OSError:
                continue  # closed meanwhile, such as the one that lists this folder
    except OSError:
        return set()
    return found


def traffic(descriptors: set[int]) -> tuple[int, int]:
    """Returns the bytes that the other side acknowledged and the bytes received, summed over the connected TCP
    sockets."""
    sent = received = 0
    for descriptor in descriptors:
        acked, got = _counters(descriptor)
        sent, received = sent + acked, received + got
    return sent, received


def _counters(descriptor: int) -> tuple[int, int]:
    """Returns bytes acknowledged and received of one socket; zeros for one that is closed or is no TCP socket."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        return struct.unpack_from("=QQ", info, BYTES_ACKED_AT)
    except (OSError, struct.error, AttributeError):
        return 0, 0  # no TCP, closed, or another system
