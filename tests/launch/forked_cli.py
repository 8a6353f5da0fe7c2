"""`paceline` as a process of its own, forked from one that has imported everything instead of started anew.

To import torch and draw figures takes such a run several times as long as all that the tests of its end are about.
The run itself is the command's, in a process and a session of its own; its fork server is forked from it in place of
started, and so are its scripts (`forked_scripts.py`). Started as users do it is in tests/cli and tests/examples.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.launch.file_systems import mount_alone

ROOT = Path(__file__).parents[2]
IMPORT_SECONDS = 120.0
OUT, ERR, REPORT = range(3)
HEAD_BYTES = 4  # before a request: its length


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
        self._one_at_a_time = threading.Lock()
        with theirs:
            command = [sys.executable, "-m", "tests.launch.forked_cli", str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def paceline(
        self,
        *words: str,
        tmpfs: tuple[Path, str] | None = None,
        draws: bool = False,
        folder: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Command:
        """`paceline WORDS...` in a session of its own, with pipes for what it says.

        `tmpfs`: in a mount namespace of its own, with a file system of these options in this folder. `draws`: it leaves
        curve.png. `folder`: where it is started. `environment`: in place of this process's, as it was at first.
        `log`: the file that what it says is added to, in place of the pipes.
        """
        mount = [str(tmpfs[0]), tmpfs[1]] if tmpfs else None
        more = {"tmpfs": mount, "draws": draws, "environment": environment, "log": log and str(log)}
        command = self._fork({"words": words, "folder": str(folder), **more})
        if log:
            command.stdout.close()
            command.stderr.close()
        return command

    def python(self, script: Path, *words: str, folder: Path, environment: Mapping[str, str] | None = None) -> Command:
        """`python SCRIPT WORDS...`, started in this folder; `environment` as above."""
        request = {"words": words, "script": str(script), "folder": str(folder), "environment": environment}
        return self._fork(request)

    def _fork(self, request: dict[str, Any]) -> Command:
        pipes = [os.pipe() for _ in (OUT, ERR, REPORT)]
        text = json.dumps(request).encode()
        with self._one_at_a_time:
            socket.send_fds(self._socket, [len(text).to_bytes(HEAD_BYTES, "big")], [write for _, write in pipes])
            self._socket.sendall(text)
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
    from tests.launch import forked_scripts  # noqa: F401

    torch.set_num_threads(1)
    gc.freeze()
    while True:
        head, fds, _, _ = socket.recv_fds(owner, HEAD_BYTES, 3)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not head:
            os._exit(0)
        request = json.loads(owner.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        if os.fork() == 0:
            owner.close()
            if "--ranks" in request["words"]:
                _import_what_ranks_need()
            _keep(request, fds)
        for fd in fds:
            os.close(fd)


def _import_what_ranks_need() -> None:
    """Each rank would import torch's compiler and sharded tensors, which take as long as the rest of torch.

    Not before the fork: no other command needs them, and a test looks that none has them.
    """
    import gc

    import torch._dynamo
    import torch.distributed.fsdp  # noqa: F401

    gc.freeze()


def _keep(request: dict[str, Any], fds: list[int]) -> None:
    """Tells the number and the exit code of the command, which is a child of this process."""
    pid = os.fork()
    if pid == 0:
        if request.get("tmpfs"):
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
    from paceline.compat.theanompi import rules
    from paceline.launch.local import fork_server_process
    from paceline.runtime.supervisor import artifacts
    from tests.launch.forked_scripts import defaults, fork_scripts

    if not request.get("draws"):
        artifacts.curve = lambda out, path: None
    os.setsid()
    defaults()
    log = request.get("log")
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else fds[OUT]
    os.dup2(said, 1)
    os.dup2(said if log else fds[ERR], 2)
    os.closerange(3, max(said, *fds) + 1)
    fork_server_process.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": Forked})  # type: ignore[assignment]
    subprocess_job.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedJob})  # type: ignore[assignment]
    os.chdir(request["folder"])
    if request.get("environment") is not None:
        os.environ.clear()
        os.environ.update(request["environment"])
    if request.get("script"):
        rules.subprocess = SimpleNamespace(Popen=ForkedCommand)  # type: ignore[assignment]
        sys.argv = [request["script"], *request["words"]]
        sys.path[0] = str(Path(request["script"]).parent)
        runpy.run_path(request["script"], run_name="__main__")
        sys.exit()
    fork_scripts(request["words"])
    sys.exit(main(request["words"]))


class Forked:
    """The fork server of a command: a fork of it."""

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], **_: Any) -> None:
        from paceline.launch.local.fork_server import ForkServer
        from tests.launch.forked_scripts import defaults

        (end,) = pass_fds
        self.pid = os.fork()
        if self.pid == 0:
            defaults()
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


class ForkedCommand:
    """`python -m paceline ...` that a script of Theano-MPI starts: a fork of the script, which has no threads yet."""

    def __init__(self, command: Sequence[str]) -> None:
        from paceline.cli.main import main
        from tests.launch.forked_scripts import defaults, fork_scripts

        words = list(command)[command.index("paceline") + 1 :]
        self.pid = os.fork()
        if self.pid == 0:
            defaults()
            fork_scripts(words)
            code = main(words)
            atexit._run_exitfuncs()
            sys.stdout.flush()
            os._exit(code)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


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
