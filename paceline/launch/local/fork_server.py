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
from paceline.launch.local.line_messages import LineDecoder, encode
from paceline.observe.terminal.streams import DroppingStream

if TYPE_CHECKING:
    from paceline.config import Config

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
OWNERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Terminals, `timeout` and batch systems send these to everybody at once: what they mean the owner decides. Only to a
worker that trains SIGTERM says that it is to be drained."""


class ForkServer:
    """The side that forks."""

    def __init__(self, owner: socket.socket) -> None:
        self._owner = owner
        self._requests: LineDecoder[ForkRequest] = LineDecoder(ForkRequest)
        self._children: dict[int, str] = {}  # pid -> party

    def run(self) -> None:
        """Until the owner closes its end."""
        ear, bell = socket.socketpair()
        for end in (ear, bell):
            end.setblocking(False)
        gc.disable()  # what is imported here stays, and looking through it again and again takes half a second
        for number in OWNERS:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(bell.fileno())
        self._own = (ear, bell)
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
        """Handle the requests that have come; False when the owner is gone."""
        try:
            data = self._owner.recv(1 << 16)
        except ConnectionError:  # it was killed with our answers unread
            data = b""
        self._requests.feed(data)
        while self._requests.has_message:
            self._handle(self._requests.take())
        return bool(data)

    def _handle(self, request: ForkRequest) -> None:
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
        """Import what takes seconds, so that nobody after us has to."""
        import torch

        from paceline.runtime import process_main as party  # noqa: F401

        torch.set_num_threads(1)  # a pool of threads started here would be a dead one in those forked

    def _prepare(self, values: dict[str, dict[str, Any]], *, gpus: bool) -> DataLoaded | LoadFailed:
        """`gpus`: are they to be counted?"""
        from paceline import config as configuration
        from paceline.core.errors import PacelineError

        try:
            config = configuration.build(values)
            self._warm()
            from paceline.runtime.collectives.torch_distributed import check_built
            from paceline.runtime.worker.train_loop import check_model, load_data

            if _makes_optimizers(config):
                import torch._dynamo  # noqa: F401  else the first of torch's would, for two seconds, in every process
            check_built(config.cluster.allreduce)
            config.codecs().warm_up()
            splits = load_data(config)
            check_model(config)
            return DataLoaded(train_samples=len(splits.train), gpus=_count_gpus() if gpus else 0)
        except PacelineError as error:
            return LoadFailed(why=str(error))

    def _fork(self, fork: Fork) -> None:
        pid = os.fork()
        if pid == 0:
            os.environ.update(fork.environment)
            self._become(fork.spec, fork.party, fork.log)
        self._children[pid] = fork.party
        self._say(Forked(party=fork.party, pid=pid))

    def _become(self, spec: str, party: str, log: str) -> None:
        """The child: never returns."""
        code = 1
        try:
            die_with_parent(f"pace {party}")
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if party.startswith(
                "worker"
            ):  # it waits until there is a worker that can be drained: `paceline.runtime.worker.preemption_notice`
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
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _say(self, answer: ForkAnswer) -> None:
        with contextlib.suppress(OSError):
            self._owner.sendall(encode(answer))


def _makes_optimizers(config: Config) -> bool:
    """Do its parties have optimizers of torch's? Servers go without, where it is SGD."""
    return config.optimizer.name != "sgd" or config.model.precision == "fp16" or config.scheme().trains_locally


def _count_gpus() -> int:
    """Returns how many GPUs torch finds here.

    They are counted in a process of their own: this one, if it asked CUDA, could fork none that uses CUDA.
    """
    if pid := os.fork():
        return max(0, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    count = 0
    try:
        signal.set_wakeup_fd(-1)
        import torch

        count = torch.cuda.device_count()
    finally:
        os._exit(count)


def die_with_parent(name: str = "") -> None:
    """Linux: be killed when the parent dies, and show a telling name in `ps` and `top`."""
    if sys.platform == "linux":
        parent = os.getppid()
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if name:
            libc.prctl(PR_SET_NAME, name.encode()[:15])
        if os.getppid() != parent:
            os._exit(1)


def _redirect(log: str) -> None:
    """What a party prints goes to its own log, not over the progress display. A disk that is full ends no party."""
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
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).run()
    os._exit(0)  # taking a whole torch down properly would take a second, and the owner waits
