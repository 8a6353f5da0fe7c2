"""Serves the page until it is told to end."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import uvicorn

from paceline.core.errors import ConfigError
from paceline.observe.watch.app import make_app
from paceline.observe.watch.reader import Outlook, Reader

LINGER_S = 2.0
"""How long the page stays after its owner has gone, so that a browser sees how the run ended."""


def serve(
    run: Path,
    about: Callable[[], dict[str, Any]],
    *,
    port: int = 0,
    outlook: Outlook | None = None,
    owner: BinaryIO | None = None,
    ready: Callable[[str], None] = print,
    metrics_open: bool = False,
) -> None:
    """Blocks until Ctrl-C, or until `owner`, a pipe, is closed at its other end.

    `ready` hears the address once it can be opened. Raises ConfigError when `port` is taken; 0 is any free one.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"--port {port}: {error.strerror}; leave it out for a free one") from None
    port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
    reader = Reader(run, outlook)
    app = make_app(reader, about, token, port, metrics_open=metrics_open)
    config = uvicorn.Config(app, access_log=False, log_level="error", lifespan="off", server_header=False)
    server = Server(config, lambda: ready(f"http://127.0.0.1:{port}/?token={token}"))
    if owner is not None:
        threading.Thread(target=_end_with, args=(owner, server), daemon=True).start()
    reader.begin()
    try:
        server.run(sockets=[listener])
    finally:
        reader.close()


class Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def _end_with(owner: BinaryIO, server: Server) -> None:
    while owner.read(4096):
        pass
    threading.Event().wait(LINGER_S)
    server.should_exit = True
