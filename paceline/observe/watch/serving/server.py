"""Serves the page until it is told to end.

`paceline watch` runs this in its own process; `--watch` of other commands starts such a process beside the run.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import uvicorn

from paceline.core.errors import ConfigError
from paceline.observe.watch.panels.alerts import CommandHook
from paceline.observe.watch.panels.run_progress import RunFacts
from paceline.observe.watch.reader import Forecaster, Reader
from paceline.observe.watch.serving.app import make_app
from paceline.observe.watch.serving.connections import HEAD_BYTES_MAX, Acceptor, LimitedProtocol

LINGER_S = 2.0
"""Seconds that the page stays after its owner has gone, so that a browser sees how the run ended."""

END_S = 2
"""Seconds that the end waits for answers that are still being taken."""


def serve(
    run: Path,
    about: Callable[[], dict[str, Any]],
    *,
    port: int = 0,
    forecaster: Forecaster | None = None,
    owner: BinaryIO | None = None,
    ready: Callable[[str], None] = print,
    metrics_open: bool = False,
    facts: Callable[[], RunFacts] = RunFacts,
    hook: Sequence[str] = (),
    give: Callable[[Path, str, int, float], None] | None = None,
) -> None:
    """Serves the page, and blocks until Ctrl-C, or until `owner`, a pipe, is closed at its other end.

    `give` gives an order to the run in a folder (`control_requests.py`); without it the page can only be read.
    `ready` is called with the address once it can be opened. `facts`: what the run's files say of it; `hook`: the words
    of a command that is called for every alert. Raises ConfigError when `port` is taken; 0 is any free
    one.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"--port {port}: {error.strerror}; leave it out for a free one") from None

    def shown() -> str:
        """Returns the run that the page shows."""
        return str(reader.run)

    def failed(line: str) -> None:
        """Shows on the page that the hook did not do what it should."""
        reader.hook_failed = line

    port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
    alerts = CommandHook(hook, shown, failed) if hook else None
    reader = Reader(run, forecaster, facts, alerts, from_start=owner is not None)
    to_run = (lambda *order: give(reader.run, *order)) if give is not None else None
    app = make_app(reader, about, token, port, metrics_open=metrics_open, give=to_run)
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_graceful_shutdown=END_S,
        access_log=False,
        log_level="critical",  # what strangers send is no error of ours
        lifespan="off",
        server_header=False,
    )
    server = PageServer(config, listener, lambda: ready(f"http://127.0.0.1:{port}/?token={token}"))
    if owner is not None:
        threading.Thread(target=_end_with, args=(owner, server), daemon=True).start()
    reader.begin()
    try:
        server.run(sockets=[])
    finally:
        reader.close()


class PageServer(uvicorn.Server):
    """Runs uvicorn on `listener`, with its own acceptor, and calls `ready` when it accepts."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._listener, self._ready = listener, ready
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._acceptor = Acceptor(self._listener, self)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        self._listener.close()
        await super().shutdown(sockets)
        if self._acceptor is not None:
            await self._acceptor.end()


def _end_with(owner: BinaryIO, server: PageServer) -> None:
    """Ends the server when the pipe to its owner is closed."""
    while owner.read(4096):
        pass
    threading.Event().wait(LINGER_S)
    server.should_exit = True
