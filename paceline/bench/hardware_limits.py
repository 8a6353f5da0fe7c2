"""What the machine does when nothing of ours is in the way: a pass over memory, bytes through plain sockets."""

from __future__ import annotations

import mmap
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from paceline.bench.result import timed
from paceline.bench.subprocess_job import Children, ParentStream

SOCKET_BYTES, PIECE_BYTES = 1 << 20, 256 << 10  # of the plain socket; the fastest of those that were tried
PAGE_BYTES = mmap.PAGESIZE
CONNECT_S = 60.0
"""Seconds until the other process has connected; it has to start first."""


def update_limit(length: int, threads: int = 1, times: int = 1) -> Callable[[], float]:
    """Returns the seconds of `times` updates from two vectors into a third, each thread at its part of them."""
    import torch  # here, for who echoes bytes goes without

    torch.set_num_threads(1)
    w, g, out = (torch.full((length,), x) for x in (0.0, 1.0, 0.0))
    parts = [torch.tensor_split(v, threads) for v in (w, g, out)]
    pool = ThreadPoolExecutor(threads)

    def one(thread: int) -> None:
        for _ in range(times):
            torch.add(parts[0][thread], parts[1][thread], alpha=-0.01, out=parts[2][thread])

    if threads == 1:
        return lambda: timed(lambda: one(0))
    return lambda: timed(lambda: list(pool.map(one, range(threads))))


def copy_limit(length: int, device: str) -> Callable[[], float]:
    """Returns the seconds of float32 numbers off a GPU into page-locked memory and back, one way after the other."""
    import torch

    from paceline.engine.accelerators import wait_for

    there = torch.ones(length, device=device)
    here = torch.empty(length, pin_memory=True)

    def both() -> None:
        here.copy_(there)
        there.copy_(here)
        wait_for(there.device)

    return lambda: timed(both)


class RawSockets:
    """Another process that takes bytes over the loopback address, or by a Unix stream, and sends bytes back.

    Every lane is a connection of its own, with a thread at either end.
    """

    def __init__(self, there_bytes: int, back_bytes: int, *, lanes: int = 1, unix: bool = False) -> None:
        self._bytes = there_bytes, back_bytes
        self._children = Children()
        self._socks: list[socket.socket] = []
        self._pool = ThreadPoolExecutor(lanes)
        with tempfile.TemporaryDirectory() as folder:
            listener = self._listen(str(Path(folder) / "raw") if unix else "")
            job = {"address": listener.getsockname(), "there": there_bytes, "back": back_bytes, "lanes": lanes}
            with listener:
                listener.settimeout(CONNECT_S)
                self._children.start("hardware_limits.echo", job)
                self._socks = [listener.accept()[0] for _ in range(lanes)]
        for sock in self._socks:
            sock.settimeout(None)
            _widen(sock)
        self._buffers = [_buffer(max(self._bytes)) for _ in range(lanes)]

    @staticmethod
    def _listen(path: str) -> socket.socket:
        """Returns a listener: a Unix stream at `path`, else TCP on the loopback address."""
        if not path:
            return socket.create_server(("127.0.0.1", 0))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        return listener

    def once(self) -> float:
        """Returns the seconds both ways, one after the other, over all lanes at once."""
        if len(self._socks) == 1:
            return timed(lambda: self._there_and_back(0))
        return timed(lambda: list(self._pool.map(self._there_and_back, range(len(self._socks)))))

    def _there_and_back(self, lane: int) -> None:
        """Sends and receives the bytes of one lane."""
        sock, buffer = self._socks[lane], self._buffers[lane]
        _send(sock, buffer[: self._bytes[0]])
        _receive(sock, buffer[: self._bytes[1]])

    def __enter__(self) -> RawSockets:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for sock in self._socks:
            sock.close()
        self._pool.shutdown()
        self._children.__exit__()


def echo(job: dict[str, Any], _serve: ParentStream) -> None:
    """Is the main function of the other process: a thread for each lane, until its stream ends."""
    lanes = [threading.Thread(target=_echo_lane, args=(job,)) for _ in range(job["lanes"])]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()


def _echo_lane(job: dict[str, Any]) -> None:
    """Receives all bytes of one direction, then sends those of the other, again and again.

    Directions alternate, as the limit is that of one way after the other.
    """
    there, back, address = job["there"], job["back"], job["address"]
    buffer = _buffer(max(there, back))
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as sock:
        sock.connect(address if isinstance(address, str) else tuple(address))
        _widen(sock)
        while _receive(sock, buffer[:there]):
            _send(sock, buffer[:back])


def _buffer(nbytes: int) -> memoryview:
    """Returns memory for the bytes, in huge pages where the system has them.

    It is written once here, so that no page is missing while time is measured.
    """
    room = mmap.mmap(-1, max(nbytes, PAGE_BYTES))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    room[:] = bytes(len(room))
    return memoryview(room)[:nbytes]


def _widen(sock: socket.socket) -> None:
    """Sets the kernel's buffers; over TCP small pieces leave at once."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(sock: socket.socket, data: memoryview) -> None:
    """Sends all of `data`, PIECE_BYTES at a time."""
    while data.nbytes:
        data = data[sock.sendmsg([data[:PIECE_BYTES]]) :]


def _receive(sock: socket.socket, data: memoryview) -> bool:
    """Receives exactly `data`; returns False at the end of the stream."""
    while data.nbytes:
        n = sock.recv_into(data[:PIECE_BYTES])
        if not n:
            return False
        data = data[n:]
    return True
