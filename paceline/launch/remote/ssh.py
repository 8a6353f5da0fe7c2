"""Starts agents on hosts by ssh: it logs in once a host, and the login carries the agent's lines.

Whatever ends the login ends the agent, and with it all it started: the end of this process, of the ssh client or of
the connection. ssh asks for nothing (BatchMode): keys and known hosts are the user's affair, as is the rest of the
configuration of ssh, of which another file can be named.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.helper_command import words_on_host
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote.agent_messages import Event
from paceline.launch.remote.hostfile import HostEntry
from paceline.launch.remote.launcher import RemoteHost, raise_all, unlike
from paceline.launch.remote.message_stream import MessageStream, SocketStream

OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=4")
FLAGS = tuple(part for option in OPTIONS for part in ("-o", option))
HELLO_SECONDS = 40.0
"""Seconds for a login, and the start of an interpreter on a busy host."""
CLOSE_SECONDS = 4.0
"""Seconds that all logins together get to end by themselves."""
SYNC_SILENCE_SECONDS = 60
"""Seconds without progress after which rsync gives up."""
EXCLUDED = (".git", ".venv", "__pycache__", "runs", ".mypy_cache", ".pytest_cache", ".ruff_cache")
"""What --sync-dir never sends."""
HINTS = {
    "No module named": "install Paceline there, name its interpreter with --python, or send it with --sync-dir",
    "Permission denied": "ssh must get in without asking: ssh-copy-id puts your key there",
    "Host key verification failed": "log in once by hand, or put the key of the host into known_hosts",
    "No such file or directory": "name the folder with --sync-dir or folder=, the interpreter with --python",
    "can't cd to": "name the folder with --sync-dir or folder=",
    "Could not resolve hostname": "correct the hosts file, or name it in --ssh-config",
    "not found": "give the interpreter with --python or python=",
}
"""What to do, by a part of the message that ssh or the other host printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    """Says how hosts are reached.

    folder  where the command is run there
    python  the interpreter, where a host has none of its own; `path`: its PYTHONPATH
    config  a file for ssh -F
    """

    folder: str
    python: str
    path: str = ""
    config: str = ""

    def login(self, host: HostEntry, *, terminal: bool = False) -> list[str]:
        """Returns the ssh command up to the name of the host. terminal: what runs there gets a terminal."""
        return ["ssh", "-t" if terminal else "-T", *FLAGS, *self._way(host), "--", host.name]

    def _way(self, host: HostEntry) -> list[str]:
        """Returns the options by which ssh, and rsync, reach a host."""
        flags = ["-F", self.config] if self.config else []
        flags += ["-p", str(host.port)] if host.port else []
        return flags + (["-l", host.user] if host.user else [])

    def agent(self, host: HostEntry) -> list[str]:
        """Returns the command that is executed here to have an agent there."""
        return self.command(host, words_on_host("paceline.launch.remote.agent"))

    def command(self, host: HostEntry, words: Sequence[str], *, terminal: bool = False) -> list[str]:
        """Returns the command that is executed here to have the interpreter there run `words`, in the folder there."""
        path = f"env PYTHONPATH={shlex.quote(self.path)} " if self.path else ""
        python = f"{path}{_quoted(host.python or self.python)} {shlex.join(words)}"
        return [*self.login(host, terminal=terminal), f"cd {_quoted(self.folder_on(host))} && exec {python}"]

    def address_of(self, host: HostEntry) -> str:
        """Returns what ssh calls when it is told this name. Raises ConfigError without an ssh."""
        command = ["ssh", *self._way(host), "-G", "--", host.name]
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise _no_client(error) from None
        lines = dict(line.partition(" ")[::2] for line in found.stdout.splitlines())
        return lines.get("hostname", host.name)

    def folder_on(self, host: HostEntry) -> str:
        """Returns the folder in which the command is run on that host."""
        return host.folder or self.folder

    def rsync(self, host: HostEntry, excluded: Sequence[str]) -> list[str]:
        """Returns the command that sends this folder there."""
        flags = [f"--timeout={SYNC_SILENCE_SECONDS}"]
        flags += [f"--exclude={pattern}" for pattern in (*EXCLUDED, *excluded)]
        shell = shlex.join(["ssh", *FLAGS, *self._way(host)])
        name = f"[{host.name}]" if ":" in host.name else host.name
        return ["rsync", "-az", "--mkpath", *flags, "-e", shell, "./", f"{name}:{self.folder_on(host)}/"]


def _no_client(error: OSError) -> ConfigError:
    """Returns the error for a machine without ssh."""
    return ConfigError(f"--launcher ssh needs an ssh client: {error.strerror}")


def _quoted(path: str) -> str:
    """Returns a path for the shell there, which shall expand a leading ~/ and nothing else."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


def sync(ssh: Ssh, hosts: Sequence[HostEntry], excluded: Sequence[str]) -> None:
    """Sends this folder to all hosts at once. Raises ConfigError with what rsync says of each that failed."""
    if shutil.which("rsync") is None:
        raise ConfigError("--sync-dir needs rsync, here and there: install it, or leave --sync-dir out")
    started = [
        subprocess.Popen(ssh.rsync(host, excluded), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        for host in hosts
    ]
    problems = []
    try:
        for host, process in zip(hosts, started, strict=True):
            _, errors = process.communicate()
            if code := process.returncode:
                said = [line for line in errors.splitlines() if line.strip()] or [f"rsync ended with {code}"]
                problems.append((str(host), said[0]))
    finally:
        for process in started:
            process.kill()  # nothing where it has ended
    raise_all(problems, "did not get the folder")


class Login:
    """Runs one ssh client, with the agent behind it."""

    def __init__(self, ssh: Ssh, host: HostEntry) -> None:
        """Raises ConfigError without an ssh to start."""
        ours, theirs = socket.socketpair()
        try:
            # A session of its own: Ctrl-C is for the launcher, which ends parties in order.
            self._process = subprocess.Popen(
                ssh.agent(host),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise _no_client(error) from None
        finally:
            theirs.close()
        self._errors: deque[str] = deque(maxlen=20)
        self._shown = False
        self._name = str(host)
        self._reader = threading.Thread(target=self._read, name=f"ssh {host}", daemon=True)
        self._reader.start()
        self.host = RemoteHost(str(host), MessageStream(SocketStream(ours), Event), why_gone=self.why)

    def problems(self) -> list[tuple[str, str]]:
        """Returns what is wrong with this host, once its agent has said hello."""
        try:
            hello = self.host.answer(HELLO_SECONDS)
        except PacelineError as error:
            return [(self._name, str(error))]
        assert isinstance(hello, messages.AgentHello)
        return [(self._name, problem) for problem in unlike(hello)]

    def show_errors(self) -> None:
        """Prints, from now on, what is written there to standard error."""
        self._shown = True

    def why(self) -> str:
        """Returns what ssh printed last, when the stream has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._reader.join(1.0)
        return _told(list(self._errors))

    def close(self, deadline: float) -> None:
        """Waits for the ssh client's end, until `deadline`; `host` is closed before."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)

    def _read(self) -> None:
        """Keeps what ssh itself prints, for an error; shows it while it matters to the user."""
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            for line in stderr:
                self._errors.append(line.strip())
                if self._shown:
                    print(f"[{self._name}] {line}", end="", file=sys.stderr)


def _told(errors: Sequence[str]) -> str:
    """Returns the last line that says something, with the way out where it is known."""
    last = next((line for line in reversed(errors) if line.strip()), "")
    hint = next((f"; {way}" for sign, way in HINTS.items() if sign in last), "")
    return (last.rstrip(".") if hint else last) + hint


def reachable(ssh: Ssh, hosts: Sequence[HostEntry]) -> tuple[list[HostEntry], list[tuple[str, str]]]:
    """Returns the hosts on which an agent can run, and what is wrong with the others. All are tried at once."""
    started: list[Login] = []
    try:
        for host in hosts:
            started.append(Login(ssh, host))
        found = [login.problems() for login in started]
    finally:
        _close(started)
    good = [host for host, problems in zip(hosts, found, strict=True) if not problems]
    return good, [problem for problems in found for problem in problems]


def _close(started: Sequence[Login]) -> None:
    """Closes all logins together, each in the time that is left."""
    for login in started:
        login.host.close()
    deadline = time.monotonic() + CLOSE_SECONDS
    for login in started:
        login.close(deadline)


@contextlib.contextmanager
def logins(ssh: Ssh, hosts: Sequence[HostEntry]) -> Iterator[list[RemoteHost]]:
    """Starts an agent on each host, all at once, and ends them when the block ends.

    Raises ConfigError with all that is wrong with any of them.
    """
    started: list[Login] = []
    try:
        for host in hosts:
            started.append(Login(ssh, host))
        raise_all([problem for login in started for problem in login.problems()], "cannot take part")
        for login in started:
            login.show_errors()
        yield [login.host for login in started]
    finally:
        _close(started)
