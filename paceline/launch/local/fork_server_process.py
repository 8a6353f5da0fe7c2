"""The process of a fork server, as its owner sees it: started, and ended.

This file needs the standard library only. A command therefore starts the process before it imports anything else, and
the two processes import what they need side by side.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence

from paceline.core.files.helper_command import helper_command

OWNERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that terminals, `timeout` and batch systems send to everybody at once; what they mean the owner decides.

Only a worker that trains heeds SIGTERM, which drains it.
"""
WARM = "--warm"
"""The option of the fork server that makes it import torch before it is asked for anything."""
NEEDLESS = ("-h", "--help", "--detach", "--write-unit", "--")
"""Words of a command that needs no fork server of its own, or not at once."""
STARTED_BY_OTHERS = (
    *("PACELINE_COORDINATOR", "PACELINE_ROLE", "DMLC_ROLE"),
    *("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SGE_TASK_ID"),
)
"""Variables of a process that may be one of many, which forks nothing (`launch/external/detect.py`)."""


def is_needed(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Returns True if a command with these words and variables makes a run on this machine, as far as one can see."""
    return not any(word.partition("=")[0] in NEEDLESS for word in words) and not any(
        name in environment for name in STARTED_BY_OTHERS
    )


class ForkServerProcess:
    """Starts a fork server; `socket` is the owner's end. As a context it ends one that nobody has closed."""

    def __init__(self, *, warm: bool = False) -> None:
        """`warm`: it imports torch at once, which takes seconds."""
        self.socket, theirs = socket.socketpair()
        command = helper_command("paceline.launch.local.fork_server", str(theirs.fileno()))
        # A terminal sends Ctrl-C to both. Until the fork server ignores such signals it keeps them pending.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OWNERS)
        try:
            self.process = subprocess.Popen(
                [*command, *([WARM] if warm else [])], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._closed = False

    def disconnect(self, *, kill: bool) -> None:
        """Ends the conversation, after which the fork server ends all it has forked, and itself.

        kill: it is killed. One that has forked nothing may be in the middle of an import, and need not end it.
        """
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        if kill:
            self.process.kill()

    def close(self) -> None:
        """Waits for its end, after `disconnect`; kills it after two seconds."""
        self._closed = True
        self.socket.close()
        try:
            self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> ForkServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._closed:
            self.disconnect(kill=True)
            self.close()
