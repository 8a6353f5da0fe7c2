"""`paceline` as a process of its own, forked from one that has imported everything instead of started anew.

To import torch and draw figures takes such a run several times as long as all that the tests of its end are about.
The run itself is the command's, in a process and a session of its own; its fork server is forked from it in place of
started. Started as users do it is in tests/cli.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.launch.file_systems import mount_alone

ROOT = Path(__file__).parents[2]
IMPORT_SECONDS = 120.0
OUT, ERR, REPORT = range(3)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class Command:
    """One that was forked; to its user a `subprocess.Popen`."""

    def __init__(self, args: Sequence[str], report: int, out: int, err: int) -> None:
        self.args, self.returncode = args, None
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)
        self._report = os.fdopen(report, "rb", buffering=0)
        self.pid = int(self._number(IMPORT_SECONDS))

    def _number(self, seconds: float | None) -> int:
        if not select.select([self._report], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired(list(self.args), seconds or 0.0)
        return int(self._report.readline())

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._number(timeout)
            self._report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that is left of stdout and stderr, once."""
        if self.stdout.closed:
            return "", ""
        with self.stdout, self.stderr, ThreadPoolExecutor(1) as beside:
            err = beside.submit(self.stderr.read)
            out = self.stdout.read()
            self.wait(timeout)
            return out, err.result()


class Warm:
    """The process that commands are forked from; a context manager."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.launch.forked_cli", str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def paceline(
        self, *words: str, tmpfs: tuple[Path, str] | None = None, draws: bool = False, folder: Path = ROOT
    ) -> Command:
        """`paceline WORDS...` in a session of its own, with pipes for what it says.

        `tmpfs`: in a mount namespace of its own, with a file system of these options in this folder. `draws`: it leaves
        curve.png. `folder`: where it is started.
        """
        mount = [str(tmpfs[0]), tmpfs[1]] if tmpfs else None
        return self._fork({"words": words, "script": "", "tmpfs": mount, "draws": draws, "folder": str(folder)})

    def python(self, script: Path, *words: str, folder: Path) -> Command:
        """`python SCRIPT WORDS...`, started in this folder."""
        request = {"words": words, "script": str(script), "tmpfs": None, "draws": False, "folder": str(folder)}
        return self._fork(request)

    def _fork(self, request: dict[str, Any]) -> Command:
        pipes = [os.pipe() for _ in (OUT, ERR, REPORT)]
        socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        return Command(request["words"], pipes[REPORT][0], pipes[OUT][0], pipes[ERR][0])

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.kill()  # it may be in the middle of an import, and has nothing of its own to end
        self._process.wait()


# ---- the process that forks ----------------------------------------------------------------------------------
def serve(owner: socket.socket) -> None:
    """Until the owner is gone. The process of a command leaves it by SystemExit."""
    import gc

    import matplotlib.figure  # noqa: F401  for curve.png
    import torch

    from paceline.cli.commands import train  # noqa: F401
    from paceline.runtime import process_main  # noqa: F401
    from paceline.runtime.supervisor import supervisor  # noqa: F401

    torch.set_num_threads(1)
    gc.freeze()
    while True:
        request, fds, _, _ = socket.recv_fds(owner, 1 << 16, 3)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not request:
            os._exit(0)
        if os.fork() == 0:
            owner.close()
            _keep(json.loads(request), fds)
        for fd in fds:
            os.close(fd)


def _keep(request: dict[str, Any], fds: list[int]) -> None:
    """Tells the number and the exit code of the command, which is a child of this process."""
    pid = os.fork()
    if pid == 0:
        if request["tmpfs"]:
            mount_alone(*request["tmpfs"])
        _become(request, fds)
    for fd in (fds[OUT], fds[ERR]):
        os.close(fd)
    os.write(fds[REPORT], b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(fds[REPORT], b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """The command, or the script. Ends as any Python program does."""
    from paceline.bench import subprocess_job
    from paceline.cli.main import main
    from paceline.launch.local import fork_server_process
    from paceline.runtime.supervisor import artifacts

    if not request["draws"]:
        artifacts.curve = lambda out, path: None
    os.setsid()
    _defaults()
    os.dup2(fds[OUT], 1)
    os.dup2(fds[ERR], 2)
    os.closerange(3, max(fds) + 1)
    fork_server_process.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": Forked})  # type: ignore[assignment]
    subprocess_job.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedJob})  # type: ignore[assignment]
    os.chdir(request["folder"])
    if request["script"]:
        sys.argv = [request["script"], *request["words"]]
        sys.path[0] = str(Path(request["script"]).parent)
        runpy.run_path(request["script"], run_name="__main__")
        sys.exit()
    sys.exit(main(request["words"]))


def _defaults() -> None:
    """Signals as a new process has them, also where these tests run under nohup."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


class Forked:
    """The fork server of a command: a fork of it."""

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], **_: Any) -> None:
        from paceline.launch.local.fork_server import ForkServer

        (end,) = pass_fds
        self.pid = os.fork()
        if self.pid == 0:
            _defaults()
            os.closerange(3, end)
            os.closerange(end + 1, 1024)
            ForkServer(socket.socket(fileno=end)).run()
            os._exit(0)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        from tests.launch.process_tree import alive, within

        if not within(timeout or 60.0, lambda: not alive(self.pid)):
            raise subprocess.TimeoutExpired("the fork server", timeout or 60.0)
        return os.waitpid(self.pid, 0)[1]


class ForkedJob:
    """A process that `paceline bench` measures: a fork of the command."""

    def __init__(self, command: Sequence[str], **_: Any) -> None:
        from paceline.bench.subprocess_job import main

        role, job = command[-2:]
        (their_in, stdin), (stdout, their_out) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.dup2(their_in, 0)
            os.dup2(their_out, 1)
            os.closerange(3, 1024)
            main(role, job)
        os.close(their_in)
        os.close(their_out)
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
