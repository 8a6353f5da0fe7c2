"""The least that a push and pull in Python needs: what it costs tells what an exchange over TCP could come to.

Two processes, one blocking TCP connection over the loopback address, a header of 57 bytes that nobody reads. The server
measures the norm of the gradient, makes the update and sends the weights. There are no numbers of messages, no checks
of what arrives, no other connections, no timeouts and no memory of what has to be sent again.
"""

from __future__ import annotations

import os
import signal
import socket
import time

import torch

from paceline.engine.vectors.buffer_pool import spare
from paceline.live.net.dialer import widen

HEADER_BYTES = 57
FIRST_BYTES = 4096
"""What is read before the header is known, as Paceline does."""


class BareExchange:
    """Starts the server on entry, as a fork of this process, and ends it on exit."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __enter__(self) -> BareExchange:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            widen(listener)
            self._server = os.fork()
            if self._server == 0:
                self._serve(listener.getsockname())
            self._sock, _ = listener.accept()
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._scratch = memoryview(bytearray(FIRST_BYTES))
        self._gradient, self._weights = self._vector(), self._vector()
        return self

    def _vector(self) -> memoryview:
        return bytes_of(spare(self._length).fill_(1e-3))

    def once(self) -> float:
        """Returns the seconds of one exchange."""
        began = time.perf_counter()
        self._sock.sendmsg([self._scratch[:HEADER_BYTES], self._gradient])
        receive(self._sock, self._scratch, self._weights)
        return time.perf_counter() - began

    def _serve(self, address: tuple[str, int]) -> None:
        """Is the server's process; it never returns."""
        torch.set_num_threads(1)
        scratch = memoryview(bytearray(FIRST_BYTES))
        g, w, other = (spare(self._length).zero_() for _ in range(3))
        with socket.create_connection(address) as sock:
            widen(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while receive(sock, scratch, bytes_of(g)):
                float(torch.linalg.vector_norm(g))
                w, other = torch.add(w, g, alpha=-0.01, out=other), w
                sock.sendmsg([scratch[:HEADER_BYTES], bytes_of(w)])
        os._exit(0)

    def __exit__(self, *_: object) -> None:
        self._sock.close()
        os.kill(self._server, signal.SIGKILL)
        os.waitpid(self._server, 0)


def bytes_of(v: torch.Tensor) -> memoryview:
    """Returns the memory of a vector."""
    return memoryview(v.numpy()).cast("B")


def receive(sock: socket.socket, scratch: memoryview, body: memoryview) -> bool:
    """Receives a header and `body`; returns False at the end of the stream."""
    read = sock.recv_into(scratch)
    if not read:
        return False
    begun = read - HEADER_BYTES
    body[:begun] = scratch[HEADER_BYTES:read]
    while begun < body.nbytes:
        begun += sock.recv_into(body[begun:])
    return True
