"""Lets agents that their engine has started again take the place of the ones before them, while a run goes on."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable

from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.remote.agent_messages import AgentHello
from paceline.launch.remote.launcher import RemoteHost, RemoteLauncher, unlike


class RestartedAgents:
    """Queues agents that have called again until there is a launcher to join."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[AgentHello, RemoteHost]] = queue.SimpleQueue()

    def register(self, hello: AgentHello, host: RemoteHost) -> None:
        """Queues an agent that has called. Any thread may call this."""
        self._calls.put((hello, host))

    def join(self, launcher: RemoteLauncher, begin: Callable[[RemoteHost, int], None]) -> None:
        """Lets all agents that come join `launcher` from now on. `begin` gets an agent ready that is to have that
        number."""
        threading.Thread(target=self._run, args=(launcher, begin), name="returning", daemon=True).start()

    def _run(self, launcher: RemoteLauncher, begin: Callable[[RemoteHost, int], None]) -> None:
        """Lets one agent after the other join. One that does not fit is told, and closed; the run is not affected."""
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
