"""Runs agents that an engine starts, and that call back: one for each worker, each where the engine put it.

The engine's own command runs here for as long as its agents do. It is given no secret: agents find the ticket that
lets them in (`paceline.launch.remote.callback_listener`) as a file in the run's folder, which all hosts share. The
ticket is deleted as soon as the last agent has called; where the engine starts agents again, with the run.

A new engine is a class with the four members of `Engine`, in a file of its own beside this one.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.helper_command import helper_command
from paceline.launch.remote.agent_messages import AgentHello
from paceline.launch.remote.callback_listener import CallbackListener
from paceline.launch.remote.hostfile import HostEntry
from paceline.launch.remote.launcher import RemoteHost, raise_all, unlike
from paceline.launch.remote.placement import Placement
from paceline.live.addresses import is_loopback

END_SECONDS = 5.0
"""Seconds that the command gets to end by itself, and then after SIGTERM."""
CANCEL_SECONDS = 30.0
"""Seconds that cancelling a job may take."""
TICKET = "ticket"


class Engine(Protocol):
    """Knows how agents are started somewhere."""

    @property
    def name(self) -> str:
        """Returns the name that --launcher takes."""

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        """Returns what is executed here to have `agents` processes of the command `agent`; it ends when the last has
        ended."""

    def cancel(self) -> list[str]:
        """Returns what is executed here, besides ending the command, so that no agent is started any more; [] for
        nothing."""

    @property
    def hint(self) -> str:
        """Returns what to do where the command cannot be found."""


class EngineCommand:
    """Runs the engine's command, and prints what it prints."""

    def __init__(self, engine: Engine, command: Sequence[str]) -> None:
        """Raises ConfigError where there is no such program."""
        self._engine = engine
        try:
            # A session of its own: Ctrl-C is for the launcher, which ends parties in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"--launcher {engine.name}: {command[0]}: {error.strerror}; {engine.hint}") from None
        self._said: deque[str] = deque(maxlen=20)
        self.done = False  # all agents have come: they end the command by ending themselves
        self._reader = threading.Thread(target=self._read, name=engine.name, daemon=True)
        self._reader.start()

    def why(self) -> str:
        """Returns what the engine printed last, once its command has ended; "" while it runs."""
        if self._process.poll() is None:
            return ""
        self._reader.join(1.0)
        last = next((line for line in reversed(self._said) if line), "")
        return f"{self._engine.name} ended with {self._process.returncode}" + (f": {last}" if last else "")

    def close(self) -> None:
        """Cancels the job and ends the command, if they still run."""
        if self._process.poll() is None and (cancel := self._engine.cancel()):
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):  # the command shall be ended all the same
                subprocess.run(
                    cancel, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=CANCEL_SECONDS
                )
        if not self.done:
            self._process.terminate()
        for end in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(END_SECONDS)
                break
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()
        self._reader.join(1.0)

    def _read(self) -> None:
        """Shows what the engine prints, and keeps the latest lines for an error."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._said.append(line.strip())
                print(f"[{self._engine.name}] {line}", end="", file=sys.stderr)


def agent_command(python: str, ticket: Path) -> list[str]:
    """Returns the command of an agent that calls back by `ticket`."""
    return [python, *helper_command("paceline.launch.remote.agent", "--dial", str(ticket))[1:]]


def plan(engine: Engine, workers: int, python: str, ticket: Path) -> str:
    """Returns what `called` would execute, for --dry-run."""
    return shlex.join(engine.command(workers, agent_command(python, ticket)))


@contextlib.contextmanager
def called(
    engine: Engine,
    count: int,
    *,
    address: str,
    python: str,
    folder: Path,
    seconds: float,
    late: Callable[[AgentHello, RemoteHost], None] | None = None,
) -> Iterator[list[tuple[AgentHello, RemoteHost]]]:
    """Starts `count` agents; lends them with their hellos, by the number their engine gave them, until the block ends.

    They call `address` of this machine; the ticket lies in `folder`. `late` is called with those that call when all
    have, if the engine restarts agents. Raises ConfigError with what keeps them from taking part, PacelineError when
    the engine ends, or they have not all called within `seconds`.
    """
    ticket = folder.absolute() / TICKET
    with contextlib.ExitStack() as open_ones:
        listener = CallbackListener(address)
        open_ones.callback(listener.close)
        folder.mkdir(parents=True, exist_ok=True)
        ticket.unlink(missing_ok=True)
        listener.write_ticket(ticket)
        open_ones.callback(ticket.unlink, missing_ok=True)
        starter = EngineCommand(engine, engine.command(count, agent_command(python, ticket)))
        open_ones.callback(starter.close)
        found: dict[int, tuple[AgentHello, RemoteHost]] = {}
        try:
            for lines, hello in listener.agents(count, seconds, given_up=starter.why, again=late is not None):
                host = RemoteHost(hello.host, lines, why_gone=starter.why)
                open_ones.callback(host.close)
                found[len(found) if late is None else hello.task] = hello, host
        except PacelineError as error:
            raise PacelineError(f"--launcher {engine.name}: {error}; --start-timeout says how long to wait") from None
        starter.done = True
        if late is not None:
            open_ones.enter_context(_heard(listener, late, starter.why))
        else:
            ticket.unlink(missing_ok=True)
        callers = sorted(found.values(), key=lambda caller: caller[0].task)
        raise_all([(hello.host, problem) for hello, _ in callers for problem in unlike(hello)], "cannot take part")
        yield callers


@contextlib.contextmanager
def _heard(
    listener: CallbackListener, late: Callable[[AgentHello, RemoteHost], None], why_gone: Callable[[], str]
) -> Iterator[None]:
    """Passes agents that call back to `late`, until the block ends."""
    came: list[RemoteHost] = []

    def hear() -> None:
        """Takes in agents until the listener is closed: those of the beginning, and those that come late."""
        while (caller := listener.caller()) is not None:
            lines, hello = caller
            came.append(RemoteHost(hello.host, lines, why_gone=why_gone))
            late(hello, came[-1])

    thread = threading.Thread(target=hear, name="late agents", daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.close()
        thread.join()
        for host in came:
            host.close()


def placed_on(callers: Sequence[tuple[str, str]], servers: int, *, apart: int = 0) -> Placement:
    """Returns a placement of a worker on each agent, told by its host and its GPUs; servers on the first of each host.

    Workers that see the same GPUs of one host take them in turn. Of the agents, the first `apart` are for servers
    only.
    """
    seen: Counter[tuple[str, str]] = Counter()
    slots = []
    for caller in callers:
        slots.append(seen[caller])
        seen[caller] += 1
    names = [host for host, _ in callers]
    first = sorted({names.index(name) for name in names[: apart or len(names)]})
    return Placement(
        hosts=tuple(HostEntry(name=name) for name in names),
        workers=tuple(range(apart, len(names))),
        slots=tuple(slots[apart:]),
        servers=tuple(itertools.islice(itertools.cycle(first), servers)),
    )


def listening_address(candidates: Sequence[tuple[str, str]]) -> str:
    """Returns the first address of this machine that others can reach; loopback where there is none."""
    return next((address for _, address in candidates if not is_loopback(address)), "127.0.0.1")
