"""Paceline's own key-value store (`paceline.kvstore`) as a script sees it, under `paceline launch`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from peers.kvstore import NotThereError

ROOT = Path(__file__).resolve().parents[2]
ROLE = Path(__file__).with_name("door_role.py")
PATIENCE_S = 120.0


class Door:
    """One server and `workers` workers of a store of type `store`; a context manager."""

    def __init__(self, store: str, workers: int, length: int) -> None:
        self._store, self._workers, self._length = store, workers, length
        self._lines: list[TextIO] = []

    def __enter__(self) -> Door:
        self._folder = tempfile.TemporaryDirectory()
        address = str(Path(self._folder.name) / "door")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen()
        listener.settimeout(1.0)
        launch = [sys.executable, "-m", "paceline", "launch", "-n", str(self._workers), "-s", "1"]
        role = [sys.executable, str(ROLE), self._store, str(self._length), address]
        self._process = subprocess.Popen(
            [*launch, "--out", str(Path(self._folder.name) / "run"), *role],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdout=subprocess.DEVNULL,
        )
        try:
            with listener:
                while len(self._lines) < self._workers:
                    self._accept(listener)
            for lines in self._lines:
                lines.readline()  # that it is ready
        except BaseException:
            self.__exit__()
            raise
        return self

    def exchange(self, times: int) -> list[float]:
        """Seconds of each of `times` exchanges (push and pull of the whole vector), of the slowest worker each."""
        for lines in self._lines:
            print(f"go {times}", file=lines, flush=True)
        each = [json.loads(lines.readline()) for lines in self._lines]
        return [max(together) for together in zip(*each, strict=True)]

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock = listener.accept()[0]
        except TimeoutError:
            if self._process.poll() is None:
                return
            raise NotThereError(f"paceline launch ended with code {self._process.returncode}") from None
        sock.settimeout(PATIENCE_S)
        self._lines.append(sock.makefile("rw"))

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()
