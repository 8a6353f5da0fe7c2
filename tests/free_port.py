"""A port for a process that is told where to listen."""

from __future__ import annotations

import contextlib
import random
import socket

PORTS = range(20_000, 30_000)
"""Below those that the system gives to whoever asks for any: no other test gets the port before it is listened to."""


def free_port() -> int:
    for port in random.SystemRandom().sample(PORTS, 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError(f"no port of {PORTS} is free")
