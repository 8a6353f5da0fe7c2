"""`--leader HOST`: the run is led by a process on another host, in a session of its own there.

    here                                      there
    ssh HOST `paceline launch --detach ...`   starts the leader, waits until the run has begun
    OUT/leader.json is a key to the host      OUT has the run's files
    `paceline attach OUT` and the like        the same verb, by ssh

The login ends when the run has begun, so nothing here keeps it alive. The command is executed in the folder that has
the script on that host, as for its workers: this one's path, `folder=` of the hosts file, or that of --sync-dir.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.launch.detached.leader_pointer import LeaderHost, LedElsewhere, point
from paceline.launch.remote.hostfile import HostEntry
from paceline.launch.remote.ssh import Ssh

LOGIN_FAILED = 255
"""The exit code of ssh itself."""


def lead_on(entry: HostEntry, ssh: Ssh, words: Sequence[str], out: str, say: Callable[[str], None]) -> int:
    """Starts `paceline WORDS` detached on a host; returns the exit code there, once the run has begun or was refused.

    out: the run's folder, which `words` name too. What is printed there appears here. Raises ConfigError without an ssh
    client, for a host that cannot be reached, and for a folder here that takes no file.
    """
    leader = LeaderHost(
        run=str(Path(out).resolve()),
        seen_from=socket.gethostname(),
        began=time.time(),
        host=entry.name,
        out=out,
        python=entry.python or ssh.python,
        folder=ssh.folder_on(entry),
        path=ssh.path,
        config=str(Path(ssh.config).absolute()) if ssh.config else "",
        port=entry.port,
        user=entry.user,
    )
    code = _executed(_command(leader, words), entry.name)
    if code:
        return code
    try:
        point(Path(out), leader)
    except OSError as error:
        raise ConfigError(f"--leader: {error.filename}: {error.strerror}; the run goes on on {entry.name}") from None
    say(f"{entry.name} leads it; the commands above work here, too")
    return 0


def forwarded(verb: str, words: Sequence[str], led: LedElsewhere) -> int:
    """Executes the same verb on the host that leads the run; returns its exit code. Raises ConfigError."""
    there = list(words)
    if led.given is not None:
        there.remove(led.given)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return _executed(_command(led.leader, [verb, led.leader.out, *there], terminal=terminal), led.leader.host)


def _command(leader: LeaderHost, words: Sequence[str], *, terminal: bool = False) -> list[str]:
    """Returns the ssh command that executes `paceline WORDS` there. terminal: it gets one, so that Ctrl-C ends it."""
    ssh = Ssh(folder=leader.folder, python=leader.python, path=leader.path, config=leader.config)
    entry = HostEntry(name=leader.host, port=leader.port, user=leader.user)
    return ssh.command(entry, ["-m", "paceline", *words], terminal=terminal)


def _executed(command: Sequence[str], host: str) -> int:
    """Executes an ssh command, whose output is this command's; returns its exit code. Raises ConfigError."""
    try:
        code = subprocess.run(command, stdin=None if "-t" in command else subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise ConfigError(f"--leader {host}: no ssh client: {error.strerror}") from None
    if code == LOGIN_FAILED:
        raise ConfigError(f"{host}: ssh could not log in there; `{shlex.join(command[:-1])}` shows why")
    return code
