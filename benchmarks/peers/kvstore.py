"""MXNet 1.9.1's distributed KVStore, which still runs, in an environment of its own (`PACKAGES`)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ROLE = Path(__file__).with_name("mxnet_role.py")
VENV = Path(os.environ.get("PACELINE_MXNET_VENV", Path(__file__).parents[2] / ".peers" / "mxnet"))
PACKAGES = ("mxnet==1.9.1", "numpy<1.24")


class NotThereError(Exception):
    """MXNet cannot be had here."""


def python() -> Path:
    """The interpreter of MXNet's environment, made the first time. Raises NotThereError with pip's last words."""
    interpreter = VENV / "bin" / "python"
    if not interpreter.exists():
        print(f"installing {', '.join(PACKAGES)} into {VENV} (the peer of this benchmark) ...", file=sys.stderr)
        for command in ([sys.executable, "-m", "venv", VENV], [interpreter, "-m", "pip", "install", "-q", *PACKAGES]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
                raise NotThereError(f"MXNet is not to be had here: {' '.join(last)}")
    return interpreter


class Job:
    """One scheduler, one server and `workers` workers of `store` on the loopback address; a context manager."""

    def __init__(self, store: str, workers: int, length: int) -> None:
        """length: float32 numbers in the one vector that is pushed and pulled whole. Raises NotThereError."""
        self._store, self._workers, self._length = store, workers, length
        self._python = python()
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Job:
        address = {
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(_free_port()),
            "DMLC_NUM_WORKER": str(self._workers),
            "DMLC_NUM_SERVER": "1",
            "DMLC_NODE_HOST": "127.0.0.1",
            "DMLC_INTERFACE": "lo",
            "OMP_NUM_THREADS": "1",
        }
        try:
            for role in ["scheduler", "server", *["worker"] * self._workers]:
                self._start({**os.environ, **address, "DMLC_ROLE": role}, role)
            for worker in self._at_work():
                self._hear(worker)
        except BaseException:
            self._end()
            raise
        return self

    def exchange(self, times: int) -> list[float]:
        """Seconds of each of `times` exchanges (push and pull of the whole vector), of the slowest worker each."""
        for worker in self._at_work():
            assert worker.stdin is not None
            worker.stdin.write(f"go {times}\n")
            worker.stdin.flush()
        each = [json.loads(self._hear(worker)) for worker in self._at_work()]
        return [max(together) for together in zip(*each, strict=True)]

    def __exit__(self, *_: object) -> None:
        self._end()

    def _at_work(self) -> list[subprocess.Popen[str]]:
        return self._processes[2:]

    def _start(self, environment: dict[str, str], role: str) -> None:
        pipe = subprocess.PIPE if role == "worker" else subprocess.DEVNULL
        command = [str(self._python), str(ROLE), self._store, str(self._length)]
        self._processes.append(
            subprocess.Popen(
                command, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=ROLE.parent
            )
        )

    def _hear(self, worker: subprocess.Popen[str]) -> str:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise NotThereError(f"an MXNet worker ended with code {worker.wait()}")
        return line

    def _end(self) -> None:
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        for process in self._processes:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
