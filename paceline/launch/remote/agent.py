"""Runs an agent, which starts processes on another host; the launcher leads it over one stream of lines
(`paceline.launch.remote.agent_messages`).

    python -m paceline.launch.remote.agent                 over standard input and output, as by ssh
    python -m paceline.launch.remote.agent --dial TICKET   calls back under TLS, where there is no input

A ticket is a file for its owner's eyes, written by the launcher (`paceline.launch.remote.callback_listener`): the
launcher's address, a token that both prove to know, and the certificate of the authority that must have signed the
launcher's own.

What it started ends with it, and it ends when the launcher's end of the stream closes, or says nothing for long.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from paceline import __version__
from paceline import config as configuration
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.safe_path import safe_join
from paceline.launch.local.interfaces import resolve
from paceline.launch.local.launcher import LocalHost, LocalLauncher
from paceline.launch.local.script_launcher import ScriptLauncher
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote import message_stream
from paceline.launch.remote.agent_messages import Request
from paceline.launch.remote.message_stream import MessageStream
from paceline.live.protocol import frames
from paceline.live.same_host.temporary_folder import TemporaryFolder
from paceline.runtime.spec.launcher import Launcher
from paceline.runtime.spec.process_spec import ProcessSpec

LOG_BYTES_MAX = 64 * 1024
"""Bytes of the end of a party's log that are sent to the launcher."""
GRACE_SECONDS = 20
"""Seconds after SIGTERM in which the launcher may end the run.

An engine that takes a job away sends SIGTERM to all of it, and half a minute later SIGKILL. An agent that the
launcher has not ended by then ends itself.
"""
TASKS = ("PACELINE_TASK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SGE_TASK_ID")
"""Variables with the agent's number, in the order in which they are looked for: torchrun may run within Slurm, and its
numbers are the finer ones."""


class Agent:
    """Serves one launcher, for one run."""

    def __init__(self, lines: MessageStream[Request], folder: Path, *, address: str) -> None:
        """`folder`: of its own, for keys and logs. `address`: of this host, as the launcher reaches it."""
        self._lines, self._folder, self._address = lines, folder, address
        self._host: LocalHost | None = None
        self._launcher: Launcher | None = None
        self._local: LocalLauncher | None = None
        self._out = ""  # where the launcher keeps the run

    def run(self) -> None:
        """Serves the launcher until it is gone; no process that this has started is left then."""
        beat = message_stream.Heartbeat(self._lines)
        try:
            while (request := self._lines.hear()) is not None:
                try:
                    self._handle(request)
                except PacelineError as error:
                    self._lines.say(messages.AgentRefused(why=str(error)))
        finally:
            beat.close()
            if self._launcher is not None:
                self._launcher.end(0.0)
            if self._host is not None:
                self._host.close()

    def _handle(self, request: Request) -> None:
        """Carries out one request. Raises PacelineError, which becomes the answer."""
        match request:
            case messages.BeginRun():
                self._begin(request)
            case messages.Prepare(config=config, workers=workers):
                if self._local is None:
                    raise PacelineError("Begin comes first")
                samples = self._local.prepare(configuration.build(config), workers)
                self._lines.say(messages.AgentPrepared(train_samples=samples))
            case messages.StartProcess(spec=text, keys=keys):
                spec = ProcessSpec.from_json(text)
                try:
                    self._start(spec, keys)
                except PacelineError as error:
                    self._lines.say(messages.AgentProcessEnded(party=spec.party, why=f"{spec.party}: {error}"))
            case messages.Kill(party=party):
                self._led.kill(Party.parse(party))
            case messages.End(seconds=seconds):
                self._led.end(seconds)
                self._lines.say(messages.RunOver())

    @property
    def _led(self) -> Launcher:
        """Returns the launcher of this host. Raises PacelineError before Begin."""
        if self._launcher is None:
            raise PacelineError("Begin comes first")
        return self._launcher

    def _begin(self, begin: messages.BeginRun) -> None:
        """Sets the environment, and makes the launcher of this host. Raises ConfigError for a command or address that
        is none."""
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"  # as in its venv
        os.environ.update(begin.environment)
        if begin.command and shutil.which(begin.command[0]) is None:
            raise ConfigError(f"{begin.command[0]}: no such program in {Path.cwd()} or on PATH")
        address = resolve(begin.bind) if begin.bind else self._address
        _check_listening(address)
        self._host = LocalHost()
        self._local = local = self._host.launcher(begin.by_role, warm=not begin.command)
        launcher = ScriptLauncher(begin.command, local, self._said, begin.by_role) if begin.command else local
        self._launcher = launcher
        threading.Thread(target=self._report, args=(launcher,), name="ends", daemon=True).start()
        self._lines.say(messages.Begun(address=address))

    def _start(self, spec: ProcessSpec, keys: Mapping[str, str]) -> None:
        """Starts a party with its files on this host: keys, logs and results lie in the agent's own folder."""
        self._out = spec.config.run.out
        if spec.resume and not Path(spec.resume).is_dir():
            raise ConfigError(f"--resume: {spec.resume} is not on this host: the runs must be in a folder of all hosts")
        credentials = ""
        if keys:
            from paceline.live.security.certificate_authority import write_secret

            place = safe_join(self._folder, "credentials")
            place.mkdir(mode=0o700, exist_ok=True)
            for name, text in keys.items():
                if not (place / name).exists():  # another party of this host has brought it
                    write_secret(place, name, text.encode())
            credentials = str(place)
        run = dataclasses.replace(spec.config.run, out=str(self._folder))
        config = dataclasses.replace(spec.config, run=run)
        self._led.start(dataclasses.replace(spec, folder=str(self._folder), credentials=credentials, config=config))

    def _said(self, party: str, line: str) -> None:
        """Sends a line that a party has printed to the launcher."""
        self._lines.say(messages.Said(party=party, line=line))

    def _report(self, launcher: Launcher) -> None:
        """Reports the end of each process, with the end of its log and the run's folder as the launcher knows it."""
        while True:
            ended = launcher.ended.get()
            log = safe_join(self._folder, "logs", f"{str(ended.who).replace(' ', '-')}.log")
            why = ended.why.replace(str(self._folder), self._out)
            told = messages.AgentProcessEnded(
                party=str(ended.who),
                why=why,
                log=_tail(log),
                lost_coordinator=ended.lost_coordinator,
                other_version=ended.other_version,
            )
            self._lines.say(told)


def _check_listening(address: str) -> None:
    """Raises ConfigError if parties could not listen on that address."""
    try:
        socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET).close()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {address} ({error.strerror}): say with address= or --interface where"
        ) from None


def _tail(log: Path) -> str:
    """Returns the end of a log; "" if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES_MAX))
            return file.read(LOG_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""


def hello() -> messages.AgentHello:
    """Returns what this host is and what it runs on, by which the launcher decides whether it fits."""
    task = next((int(os.environ[name]) for name in TASKS if os.environ.get(name, "").isdecimal()), -1)
    return messages.AgentHello(
        host=socket.gethostname(),
        pid=os.getpid(),
        python=platform.python_version(),
        paceline=__version__,
        torch=importlib.metadata.version("torch"),
        protocol=frames.VERSION,
        byte_order=sys.byteorder,
        task=task,
        gpus=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    )


def main(arguments: list[str]) -> int:
    """Runs an agent over standard input and output, or over a call by a ticket. It never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # in order, so that nobody is left
    lines: MessageStream[Request]
    if arguments[:1] == ["--dial"]:
        from paceline.launch.remote.callback_listener import enter

        told: list[int] = []  # SIGTERM that came after the hello, and before it could be reported
        lines, address = enter(Path(arguments[1]), lambda: _hello_noting_sigterm(told))
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(143))
        signal.signal(signal.SIGTERM, lambda *_: _terminated(lines))
        if told:
            _terminated(lines)
    else:
        lines, address = MessageStream(message_stream.Descriptors(os.dup(0), os.dup(1)), Request), _reached_at()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)  # what a library prints shall not pass for a line of ours
        lines.say(hello())
    with TemporaryFolder("agent") as folder:
        Agent(lines, Path(folder), address=address).run()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(0)  # threads that wait for parties which are gone would keep it


def _hello_noting_sigterm(told: list[int]) -> messages.AgentHello:
    """Returns the hello. From now on a SIGTERM is kept in `told`, until `main` can report it.

    Once it has the hello, the launcher waits for a Leaving; a SIGTERM that ended the agent here would leave it waiting.
    """
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    return hello()


def _terminated(lines: MessageStream[Request]) -> None:
    """Handles SIGTERM of an engine: the first one is reported to the launcher, the second one ends the agent."""
    if signal.alarm(GRACE_SECONDS):
        sys.exit(143)  # it is said for the second time
    # Not here: this thread may be saying something else just now.
    threading.Thread(target=lines.say, args=[messages.Leaving()], name="leaving", daemon=True).start()


def _reached_at() -> str:
    """Returns the address of this host at which the launcher's login came in."""
    way = os.environ.get("SSH_CONNECTION", "").split()
    return way[2].partition("%")[0] if len(way) == 4 else "127.0.0.1"


if __name__ == "__main__":
    main(sys.argv[1:])
