"""The process of a coordinator that may be lost: it hears lines, says what the coordinator says, and forks its standby.

    python -m paceline.job.standby STREAM FORKS    numbers of two sockets: of lines, and of streams for standbys

A standby is this process as it was after some line, and waits. When this one is lost, the standby hears the lines
since, says the same again, which whoever keeps the lines has had, and goes on from there. So nothing of a coordinator
is ever written down, and no line is kept for longer than until the next standby is there.

    [at, "begin", config, samples, evaluator]    the first line
    [at, "fork", n]                              become two; the other one has stream n
    [at, "done", n]                              has everything before this been heard?

What it says is numbered, so that what is said again is told from what is new; `ready` and `done` have number 0.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any, BinaryIO

import msgspec

from paceline import config as configuration
from paceline.core.leases import Data
from paceline.job.coordinating import make_coordinator
from paceline.job.keeping import Keeping
from paceline.live.replica import Replica

LENGTH_BYTES = 4
OWNERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode


def framed(of: list[Any]) -> bytes:
    """A line, or what is said, as it goes over the stream."""
    body = encode(of)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Process:
    """Until whoever keeps the lines closes the stream."""

    def __init__(self, stream: socket.socket, forks: socket.socket) -> None:
        self._forks = forks
        self._said = 0
        self._replica: Replica | None = None
        self._speak_over(stream)

    def _speak_over(self, stream: socket.socket) -> None:
        self._stream, self._lines = stream, stream.makefile("rb")
        self._stream.sendall(framed([0, "ready", os.getpid()]))

    def run(self) -> None:
        while line := _read(self._lines):
            match line[1]:
                case "fork":
                    self._fork(line[2])
                case "done":
                    self._stream.sendall(framed([0, "done", line[2]]))
                case "begin":
                    self._replica = _begin(*line[2:])
                case _:
                    self._hear(line)

    def _hear(self, line: list[Any]) -> None:
        assert self._replica is not None
        try:
            said = self._replica.hear(line)
        except Exception as error:  # of the coordinator's own: another one would make the same
            what = f"coordinator: {type(error).__name__}: {error}"
            said = [["failed", "coordinator", what, traceback.format_exc()]]
        frames = []
        for of in said:
            self._said += 1
            frames.append(framed([self._said, *of]))
        self._stream.sendall(b"".join(frames))

    def _fork(self, number: int) -> None:
        stream = self._stream_number(number)
        if stream is None:
            return
        try:
            standby = os.fork() == 0
        except OSError:  # whoever keeps the lines sees the stream closed
            standby = False
        if standby:
            self._lines.close()
            self._stream.close()
            self._speak_over(stream)
        else:
            stream.close()

    def _stream_number(self, number: int) -> socket.socket | None:
        """Those before it were for others, who were lost before they took them."""
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._forks, 8, 1)
            except BlockingIOError:
                return None
            stream = socket.socket(fileno=descriptors[0])
            if int.from_bytes(data, "big") == number:
                return stream
            stream.close()


def _read(lines: BinaryIO) -> list[Any] | None:
    """None at the end; what is torn was for nobody."""
    head = lines.read(LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    body = lines.read(length) if len(head) == LENGTH_BYTES else b""
    line: list[Any] | None = decode(body) if body and len(body) == length else None
    return line


def _begin(values: str, train_samples: int, evaluator: bool, done: Data = (), behind: int = 0) -> Replica:
    config = configuration.build(json.loads(values))
    make = functools.partial(
        make_coordinator, config=config, train_samples=train_samples, evaluator=evaluator, done=done, behind=behind
    )
    cluster = config.cluster
    return Replica(make, Keeping(cluster.snapshot_every, copies=cluster.ack == "replica"))


def main(stream: int, forks: int) -> None:
    for number in OWNERS:  # what they mean, whoever keeps the lines decides
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a standby
    with contextlib.suppress(ConnectionError):  # whoever kept the lines is gone
        Process(socket.socket(fileno=stream), socket.socket(fileno=forks)).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)
