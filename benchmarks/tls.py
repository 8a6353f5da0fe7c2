"""What TLS costs: bytes a second of one stream, and how much longer an exchange takes over a link of 1 Gbit/s.

python benchmarks/tls.py [--mbytes 64] [--rounds 7]

Two processes of this machine: one sends a vector as a worker pushes it, in slices of 4 MiB over one stream, the other
answers when it has all of it. In turn plain and under TLS, first as fast as it goes, then with the kernel pacing the
sender to 125 MB/s, which is what a link of 1 Gbit/s does. The claims: TLS moves at least 1 GB/s, and over the link an
exchange takes at most 2 % longer, so that of a step, of which it is a part, TLS is at most 2 %.
"""

from __future__ import annotations

import argparse
import datetime
import os
import queue
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _verdict import verdict

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import Party, server, worker
from paceline.core.paramserver.gated_server import Push
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from paceline.live.security.certificate_authority import CertificateAuthority
from paceline.live.security.tls import Tls

SO_MAX_PACING_RATE = 47  # Linux: bytes a second
LINK_BYTES_PER_SECOND = 125_000_000
SLICE = 1 << 20  # elements
BOUND_BYTES_PER_SECOND, BOUND_LONGER = 1e9, 1.02
TOKEN = "of a benchmark"


class Arrays:
    """Memory of float32 arrays."""

    def empty(self, length: int) -> Any:
        return np.empty(length, np.float32)

    def bytes_of(self, v: Any) -> memoryview:
        return memoryview(v.view(np.uint8))

    def join(self, parts: Sequence[Any]) -> Any:
        return np.concatenate(parts)


class End:
    """One of the two: answers when `slices` have come, or hears that answer."""

    def __init__(self, me: Party, folder: str, slices: int) -> None:
        tls = Tls(folder, me) if folder else None
        self.transport = TcpTransport(me, TOKEN, Arrays(), tls=tls, streams=1)
        self.answers: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._slices, self._come = slices, 0
        self.transport.open(self)

    def deliver(self, src: Party, envelope: Envelope) -> None:
        if isinstance(envelope.message, Total):
            self.answers.put(None)
            return
        self._come += 1
        if self._come % self._slices == 0:
            self.transport.send(src, Envelope(Kind.CONTROL, Total(samples=0)))

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        return [np.empty(n, np.float32) for n in lengths]

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None: ...

    def failed(self, error: BaseException) -> None:
        os._exit(1)


def answering(folder: str, slices: int) -> tuple[int, str]:
    """A process that answers: its pid and address."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        end = End(server(0), folder, slices)
        theirs.sendall(end.transport.address.encode())
        theirs.recv(1)  # until the other process closes its end
        os._exit(0)
    theirs.close()
    address = ours.recv(200).decode()
    _kept.append(ours)
    return pid, address


_kept: list[socket.socket] = []


def seconds(end: End, vectors: list[Any]) -> float:
    began = time.perf_counter()
    for clock, v in enumerate(vectors):
        end.transport.send(server(0), Envelope(Kind.TELL, Push(g=v, clock=clock, samples=1)))
    end.answers.get(timeout=60)
    return time.perf_counter() - began


def pace(end: End, bytes_per_second: int) -> None:
    connection = end.transport._connections[server(0)]
    connection._sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, bytes_per_second)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", type=int, default=64, help="MiB of a vector")
    parser.add_argument("--rounds", type=int, default=7, help="exchanges of each kind, in turn")
    options = parser.parse_args()
    slices = max(1, options.mbytes // 4)
    vectors = [np.zeros(SLICE, np.float32) + i for i in range(slices)]
    nbytes = sum(v.nbytes for v in vectors)
    with tempfile.TemporaryDirectory() as folder:
        keys = str(Path(folder) / "credentials")
        CertificateAuthority().write(Path(keys), [server(0), worker(0)])
        others = [answering(where, slices) for where in ("", keys)]
        ends = [End(worker(0), where, slices) for where in ("", keys)]
    for end, (_, address) in zip(ends, others, strict=True):
        end.transport.connect(server(0), address)
        seconds(end, vectors)  # warm-up
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {nbytes / 2**20:.0f} MiB in slices of 4 MiB, one stream")
    free = [[seconds(end, vectors) for end in ends] for _ in range(options.rounds)]
    for end in ends:
        pace(end, LINK_BYTES_PER_SECOND)
    paced = [[seconds(end, vectors) for end in ends] for _ in range(max(3, options.rounds // 2))]
    for end in ends:
        end.transport.close()
    while _kept:
        _kept.pop().close()
    for pid, _ in others:
        os.waitpid(pid, 0)
    return report(free, paced, nbytes)


def report(free: list[list[float]], paced: list[list[float]], nbytes: int) -> int:
    plain, tls = (nbytes / statistics.median(column) for column in zip(*free, strict=True))
    slow, longer = (statistics.median(column) for column in zip(*paced, strict=True))
    ratio = statistics.median(b / a for a, b in paced)
    print(f"as fast as it goes   plain {plain / 1e9:.2f} GB/s   TLS 1.3 {tls / 1e9:.2f} GB/s   ratio {tls / plain:.2f}")
    print(f"at 1 Gbit/s          plain {slow * 1e3:.0f} ms       TLS 1.3 {longer * 1e3:.0f} ms       ratio {ratio:.3f}")
    holds = tls >= BOUND_BYTES_PER_SECOND and ratio <= BOUND_LONGER
    return verdict(f"claimed: TLS at least 1 GB/s, ratio at most {BOUND_LONGER}", holds)


if __name__ == "__main__":
    sys.exit(main())
