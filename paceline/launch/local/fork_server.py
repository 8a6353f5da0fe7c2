"""A warm process that the parties of a run are forked from.

Importing torch takes seconds and a data set tens of megabytes; this process does both once, has one thread and runs
no tensor operation, and then forks a party in milliseconds. It ends all it forked when its owner's end of the socket
closes, and the kernel ends them when it dies itself, so that nothing outlives a run whatever happens.

Over the socket go the messages of `fork_messages.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.launch.local.fork_messages import (
    DataLoaded,
    Fork,
    ForkAnswer,
    Forked,
    ForkEnded,
    ForkRequest,
    ImportTorch,
    LoadData,
    LoadFailed,
    SendSignal,
)
from paceline.launch.local.fork_server_process import OWNERS, WARM
from paceline.launch.local.freed_memory import keep_freed_memory
from paceline.launch.local.line_messages import LineDecoder, encode
from paceline.observe.terminal.streams import DroppingStream

if TYPE_CHECKING:
    from paceline.config import Config
    from paceline.engine.data.dataset import Splits

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
"""Numbers of Linux' prctl: the signal at a parent's death, and the name of a process."""


class ForkServer:
    """Runs in the warm process: it reads requests, forks, and reaps."""

    def __init__(self, owner: socket.socket) -> None:
        self._owner = owner
        self._requests: LineDecoder[ForkRequest] = LineDecoder(ForkRequest)
        self._children: dict[int, str] = {}  # pid -> party

    def run(self, *, warm: bool = False) -> None:
        """Serves requests until the owner closes its end. `warm`: imports torch first, as for ImportTorch."""
        ear, bell = socket.socketpair()
        for end in (ear, bell):
            end.setblocking(False)
        gc.disable()  # what is imported here stays, and looking through it again and again takes half a second
        for number in OWNERS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OWNERS)  # the owner has blocked them
        # A handler that does nothing, so that the end of a child wakes the selector by the wakeup descriptor.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(bell.fileno())
        self._own = (ear, bell)
        if warm:
            self._warm()
        import selectors

        with selectors.DefaultSelector() as selector:
            selector.register(self._owner, selectors.EVENT_READ)
            selector.register(ear, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is ear:
                        with contextlib.suppress(BlockingIOError):
                            ear.recv(4096)
                        self._reap()
                    elif not self._read():
                        self._end_all()
                        return

    def _read(self) -> bool:
        """Handles the requests that have come; returns False when the owner is gone."""
        try:
            data = self._owner.recv(1 << 16)
        except ConnectionError:  # it was killed with our answers unread
            data = b""
        self._requests.feed(data)
        while self._requests.has_message:
            self._handle(self._requests.take())
        return bool(data)

    def _handle(self, request: ForkRequest) -> None:
        """Carries out one request."""
        match request:
            case ImportTorch():
                self._warm()
            case LoadData():
                self._say(self._prepare(request.config, gpus=request.count_gpus))
            case Fork():
                self._fork(request)
            case SendSignal(pid=pid, number=number):
                if pid in self._children:
                    os.kill(pid, number)

    def _warm(self) -> None:
        """Imports what takes seconds, so that no forked process has to."""
        import torch

        from paceline.engine.without_compiler import optimizers_without_compiler
        from paceline.runtime import process_main as party  # noqa: F401
        from paceline.runtime.spec import row_packer  # noqa: F401

        torch.set_num_threads(1)  # a pool of threads started here would be a dead one in those forked
        if not optimizers_without_compiler():
            import torch._dynamo  # else the first optimizer would, in every process

    def _prepare(self, values: dict[str, dict[str, Any]], *, gpus: bool) -> DataLoaded | LoadFailed:
        """Loads the data of a run; `gpus`: count them as well. Errors become an answer."""
        from paceline import config as configuration
        from paceline.core.errors import PacelineError

        try:
            config = configuration.build(values)
            self._warm()
            from paceline.runtime.collectives.torch_distributed import check_built
            from paceline.runtime.worker.train_loop import check_model, load_data

            check_built(config.cluster.allreduce)
            config.codecs().warm_up()
            splits = load_data(config)
            check_model(config)
            if why := _why_not_built(config, splits):
                return LoadFailed(why=why)
            return DataLoaded(train_samples=len(splits.train), gpus=_count_gpus() if gpus else 0)
        except PacelineError as error:
            return LoadFailed(why=str(error))

    def _fork(self, fork: Fork) -> None:
        """Forks a party; the child never returns from here."""
        pid = os.fork()
        if pid == 0:
            os.environ.update(fork.environment)
            self._become(fork.spec, fork.party, fork.log)
        self._children[pid] = fork.party
        self._say(Forked(party=fork.party, pid=pid))

    def _become(self, spec: str, party: str, log: str) -> None:
        """Becomes the party, in the child, and ends the process with its exit code."""
        code = 1
        try:
            die_with_parent(f"pace {party}")
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # SIGTERM waits until there is a worker that can be drained: `paceline.runtime.worker.preemption_notice`.
            if party.startswith("worker"):
                keep_freed_memory(os.environ)
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for end in (self._owner, *self._own):
                end.close()
            gc.freeze()  # it neither goes through what it has inherited, nor copies the pages of that
            gc.enable()
            _redirect(log)
            faulthandler.enable()

            from paceline.runtime import process_main
            from paceline.runtime.spec.process_spec import ProcessSpec

            code = process_main.main(ProcessSpec.from_json(spec))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        """Reports every child that has ended."""
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            party = self._children.pop(pid, None)
            if party:
                self._say(ForkEnded(party=party, pid=pid, code=os.waitstatus_to_exitcode(status)))

    def _end_all(self) -> None:
        """Kills all children, since the owner is gone."""
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _say(self, answer: ForkAnswer) -> None:
        """Sends an answer; it is lost where the owner is gone, which the next read will tell."""
        with contextlib.suppress(OSError):
            self._owner.sendall(encode(answer))


def _count_gpus() -> int:
    """Returns how many GPUs torch finds here. This process, if it asked CUDA, could fork none that uses CUDA."""

    def count() -> str:
        from paceline.engine.accelerators import count_of

        return str(count_of("cuda"))

    return int(_of_a_child(count) or 0)


def _why_not_built(config: Config, splits: Splits) -> str:
    """Returns why the network cannot be trained on the data, in one line; "" if it can.

    Torch's threads, which the first forward pass starts, would be missing in all that this process forks after it.
    """

    def why_not() -> str:
        from paceline.core.errors import PacelineError
        from paceline.runtime.worker.train_loop import build_model

        try:
            build_model(config, splits)
        except PacelineError as error:
            return str(error)
        return ""

    return _of_a_child(why_not)


def _of_a_child(answer: Callable[[], str]) -> str:
    """Returns what `answer` returns in a process of its own, 4096 bytes at most; "" where it fails.

    Whatever it prints is lost.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            signal.set_wakeup_fd(-1)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            os.write(writer, answer().encode()[:4096])
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answered:
        found = answered.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return found


def die_with_parent(name: str = "") -> None:
    """Asks Linux to kill this process when its parent dies, and shows `name` in `ps` and `top`."""
    if sys.platform == "linux":
        parent = os.getppid()
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if name:
            libc.prctl(PR_SET_NAME, name.encode()[:15])
        # The parent may have died before the request was made; then nobody would kill this process.
        if os.getppid() != parent:
            os._exit(1)


def _redirect(log: str) -> None:
    """Sends what a party prints to its own log, not over the progress display. A full disk ends no party."""
    try:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    sys.stdout, sys.stderr = DroppingStream(sys.stdout), DroppingStream(sys.stderr)


if __name__ == "__main__":
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).run(warm=WARM in sys.argv[2:])
    os._exit(0)  # taking a whole torch down properly would take a second, and the owner waits
