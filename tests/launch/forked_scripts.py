"""Scripts that a forked command starts, forked as well: they have torch from their first line.

A command has threads when it starts its scripts, and a fork of it could find a lock that nobody will release. So a
process without threads forks them, which the command has forked first of all. A script is its grandchild, whose parent
ends at once, so that Linux gives the script to the command (PR_SET_CHILD_SUBREAPER). The command can wait for it, and
it dies with the command, as one that `subprocess.Popen` has started.

What is not `python SCRIPT.py ...` is started as ever.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from paceline.launch.local import rank_processes, script_launcher

PR_SET_CHILD_SUBREAPER = 36
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
HEAD_BYTES = 4  # before a request: its length
QUIET = ["-W", "ignore"]  # Python's option before a script that has warnings of others
RANKS = ("-m", script_launcher.RANK_PROCESSES)


def defaults() -> None:
    """Signals as a new process has them, also where these tests run under nohup."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def script_of(command: Sequence[str]) -> list[str]:
    """What follows `python` in `command`, if it is a script or module of this one, also as several ranks; otherwise
    []."""
    program, *words = command
    words = words[1:] if words[:2] == ["-P", "-m"] else words  # helper processes
    if tuple(words[:2]) == RANKS:
        return words if script_of(words[3:]) else []
    if words[:2] == QUIET:
        return words if script_of([program, *words[2:]]) else []
    is_script = words[:1] != [] and words[0].endswith(".py") and Path(words[0]).exists()
    is_module = words[:1] == ["-m"] and words[1].startswith("paceline.")
    return words if program in (sys.executable, "python") and (is_script or is_module) else []


def as_script(words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Makes this process what `python WORDS...` is, with nobody's threads and output of its own."""
    import torch

    defaults()
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", 0, closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0, closefd=False), errors="backslashreplace", write_through=True)
    if tuple(words[:2]) == RANKS:
        rank_processes.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedRank})  # type: ignore[assignment]
        sys.exit(rank_processes.main(words[2:]))
    if list(words[:2]) == QUIET:
        warnings.simplefilter("ignore")
        words = words[2:]
    sys.argv = list(words)
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = [words[1], *words[2:]]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        sys.exit()
    sys.path[0] = str(Path(words[0]).parent)
    runpy.run_path(words[0], run_name="__main__")
    sys.exit()


class ForkedChild:
    """A child of this process; to its user a `subprocess.Popen`."""

    pid: int

    def __init__(self, command: Sequence[str]) -> None:
        self.args, self.returncode = command, None
        self._waits = threading.Lock()

    def wait(self) -> int:
        with self._waits:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedRank(ForkedChild):
    """One rank of a worker, whose process has no threads yet when it starts them."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], preexec_fn: Callable[[], None], **_: Any
    ) -> None:
        super().__init__(command)
        lines, end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(end, 1)
            os.dup2(end, 2)
            os.closerange(3, max(lines, end) + 1)
            preexec_fn()
            as_script(script_of(command), env)
        os.close(end)
        self.stdout = os.fdopen(lines, "rb")


class Forker:
    """The process without threads, for the command; made before the command has any."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._one_at_a_time = threading.Lock()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if os.fork() == 0:
            self._socket.close()
            _serve(theirs)
        theirs.close()

    def script(self, command: Sequence[str], **given: Any) -> Any:
        """What `subprocess.Popen` with these arguments returns, in `script_launcher`."""
        words = script_of(command)
        if not words:
            return subprocess.Popen(command, **given)
        return ForkedScript(self, command, words, **given)

    def fork(self, words: Sequence[str], environment: Mapping[str, str], prepares: Any, out: int) -> int:
        """Forks a script that `prepares` itself first; returns its number. `out`: for what it prints."""
        kind, args = (
            getattr(prepares, "func", prepares).__name__,
            [sorted(part) for part in getattr(prepares, "args", ())],
        )
        request = {"words": words, "environment": dict(environment), "kind": kind, "args": args, "parent": os.getpid()}
        text = json.dumps(request).encode()
        with self._one_at_a_time:
            socket.send_fds(self._socket, [len(text).to_bytes(HEAD_BYTES, "big")], [out])
            self._socket.sendall(text)
            return int(self._socket.recv(64))


def fork_scripts(words: Sequence[str]) -> None:
    """Lets a command with these words fork its scripts; called before it has threads."""
    if sys.executable in words or "python" in words:
        popen = Forker().script
        script_launcher.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": popen})  # type: ignore[assignment]


class ForkedScript(ForkedChild):
    """A script of a worker; a child of this process, forked by another one."""

    def __init__(
        self,
        forker: Forker,
        command: Sequence[str],
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        preexec_fn: Any,
        errors: str,
        **_: Any,
    ) -> None:
        super().__init__(command)
        lines, end = os.pipe()
        self.pid = forker.fork(words, env, preexec_fn, end)
        os.close(end)
        self.stdout = open(lines, errors=errors)  # noqa: SIM115


def _serve(owner: socket.socket) -> NoReturn:
    """Forks what the command asks for, until that has ended. A script leaves it by SystemExit."""
    for number in SIGNALS[:3]:  # a terminal's go to all, and what they mean the command decides
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, owner.fileno())
    os.closerange(owner.fileno() + 1, 1024)
    while True:
        head, fds, _, _ = socket.recv_fds(owner, HEAD_BYTES, 1)
        if not head:
            os._exit(0)
        text = owner.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            os.close(told)
            _begin(json.loads(text), fds[0], tell, owner)
        os.waitpid(between, 0)
        os.close(tell)
        os.close(fds[0])
        with os.fdopen(told, "rb") as numbers:
            owner.sendall(numbers.readline())


def _begin(request: dict[str, Any], out: int, tell: int, owner: socket.socket) -> NoReturn:
    """Becomes the script, once this process is the command's."""
    while os.getppid() != request["parent"]:
        if os.getppid() == 1:
            os._exit(1)  # the command has ended
    os.setsid()
    os.dup2(out, 1)
    os.dup2(out, 2)
    prepares = getattr(script_launcher, request["kind"])
    prepares(*map(frozenset, request["args"]))
    os.write(tell, b"%d\n" % os.getpid())
    owner.close()
    os.closerange(3, 1024)
    as_script(request["words"], request["environment"])
