"""Agents that their engine has started again while a run goes on: each takes the place of the one before it."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable

from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.remote.launcher import RemoteHost, RemoteLauncher, unlike
from paceline.launch.remote.protocol import AgentHello


class RestartedAgents:
    """Those who have come wait until there is a launcher to join."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[AgentHello, RemoteHost]] = queue.SimpleQueue()

    def register(self, hello: AgentHello, host: RemoteHost) -> None:
        """It has called; from any thread."""
        self._calls.put((hello, host))

    def join(self, launcher: RemoteLauncher, begin: Callable[[RemoteHost, int], None]) -> None:
        """Let all who come join `launcher` from now on. `begin` gets an agent ready that is to have that number."""
        threading.Thread(target=self._run, args=(launcher, begin), name="returning", daemon=True).start()

    def _run(self, launcher: RemoteLauncher, begin: Callable[[RemoteHost, int], None]) -> None:
        while True:
            hello, host = self._calls.get()
            try:
                for problem in unlike(hello):
                    raise ConfigError(problem)
                launcher.check(hello.task)
                begin(host, hello.task)
                launcher.rejoin(hello.task, host)
            except PacelineError as error:
                print(f"paceline: {hello.host} cannot take part again: {error}", file=sys.stderr, flush=True)
                host.close()
