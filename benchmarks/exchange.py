"""How long it takes a worker to hand a gradient over and get weights back, against what the machine allows.

python benchmarks/exchange.py [--mbytes 100] [--rounds 9] [--transports shm,tcp] [--slice-mb shm=0,tcp=4]

One worker, one server (processes of their own, one thread each for arithmetic), ASP, plain SGD, float32. A push and
pull begins with the gradient in the worker's buffer and ends with the new weights in its hands: all of them can be
read, as one vector. All that is measured takes turns in one run; the figures are medians.

What bounds it, measured here:

- shared memory: the server reads w and g and writes w', 3 bytes moved for each byte of the model. The limit is the time
  of one `torch.add(w, g, alpha=..., out=w')` of that size in one process, on one thread. The gradient is not copied on
  its way, the weights are read where the server wrote them.
- TCP: the gradient one way and the weights the other, by plain `sendmsg` and `recv_into` of two processes over the
  loopback address, one way after the other.

Claims: shared memory within 1.5 times its limit, TCP within 1.25 times.
"""

from __future__ import annotations

import argparse
import datetime
import json
import mmap
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BOUNDS = {"shm": 1.5, "tcp": 1.25}
TOKEN = "the token of this run"
FLOAT_BYTES = 4
SOCKET_BYTES, PIECE_BYTES = 1 << 20, 256 << 10  # of the plain socket; the fastest of those that were tried


# ---- one process of a job --------------------------------------------------------------------------------------------
class _Ears:
    """What a transport tells, passed on to a node."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.deliver, self.lost = node.deliver, node.lost

    def room_for(self, src: Any, kind: Any, id: int, cls: type, lengths: Any, shared: Any) -> list[Any]:
        rooms: list[Any] = self.node.room_for(src, kind, id, lengths, shared)
        return rooms

    def failed(self, error: BaseException) -> None:
        print(f"failed: {error!r}", file=sys.stderr)
        os._exit(1)


def _open(party: str, transport: str) -> tuple[Any, Any]:
    """A node and its transport, as a party of a run has them."""
    import torch

    import paceline.schemes  # noqa: F401  enters the catalogue
    from paceline.engine.vector import FlatMemory
    from paceline.job.seat import Seat
    from paceline.live.node import Node

    torch.set_num_threads(1)
    seat = Seat(party=party, workers=1, servers=1, coordinator="", token=TOKEN, exchange=transport)
    way = seat.transport()
    node = Node(way, FlatMemory(), timeout_s=60.0)
    way.open(_Ears(node))
    return node, way


def _layout(length: int, slice_mb: float) -> Any:
    from paceline.core.sharding import lay_out

    return lay_out(length, 1, round(slice_mb * 2**20 / FLOAT_BYTES))


def serve(job: dict[str, Any]) -> None:
    """Until the input ends."""
    from paceline.core.role import Place
    from paceline.core.scheme import make
    from paceline.engine.pool import spare
    from paceline.engine.recipes import OptimizerRecipe
    from paceline.engine.rules import make_rule
    from paceline.engine.vector import Flat
    from paceline.live.node import Hosted

    node, way = _open("server 0", job["transport"])
    layout, scheme = _layout(job["length"], job["slice_mb"]), make(job["scheme"], {})

    def hosted(number: int, part: slice) -> Hosted:
        length = part.stop - part.start
        w, rule = Flat(spare(length).zero_()), make_rule(OptimizerRecipe(name="sgd", lr=0.01))
        place = Place(me=number, workers=tuple(range(job["workers"])), w=w, update=rule)
        return Hosted(length, scheme.server(len(layout.slices))(scheme, place))

    node.host([hosted(number, part) for number, part in enumerate(layout.slices)])
    print(way.address, flush=True)
    sys.stdin.read()
    os._exit(0)


def work(job: dict[str, Any]) -> None:
    """`go N` on the input makes N exchanges and answers with their seconds as JSON."""
    from paceline.core.effects import Computed
    from paceline.core.role import Place
    from paceline.core.scheme import make
    from paceline.engine.pool import spare
    from paceline.engine.vector import Flat
    from paceline.live import party

    node, way = _open(f"worker {job['rank']}", job["transport"])
    way.connect(party.server(0), job["address"])
    layout, scheme = _layout(job["length"], job["slice_mb"]), make(job["scheme"], {})
    place = Place(me=job["rank"], workers=tuple(range(job["workers"])), w=None, update=lambda w, g, samples: w)
    node.place(scheme.worker(len(layout.slices))(scheme, place), layout)
    compute = node.advance()
    g, module = Flat(spare(job["length"]).fill_(1e-3)), spare(job["length"]).zero_()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line.split()[1])):
            began = time.perf_counter()
            compute = node.advance(Computed(g=g, samples=1, seconds=0.0))
            if job["load"]:
                compute.w.copy_into(module)
            else:
                _ = compute.w.tensor  # waits for weights that are still arriving, and joins those that lie apart
            times.append(time.perf_counter() - began)
        print(json.dumps(times), flush=True)
    os._exit(0)


# ---- the sides -------------------------------------------------------------------------------------------------------
class Paceline:
    """One server and `workers` workers over `transport`; a context manager. The like of `peers.kvstore.Job`."""

    def __init__(
        self,
        transport: str,
        length: int,
        *,
        workers: int = 1,
        scheme: str = "asp",
        slice_mb: float = 0.0,
        load: bool = False,
    ) -> None:
        """load: the new weights are copied into a buffer of the worker's own, as into a module."""
        self._job = {
            "transport": transport,
            "length": length,
            "workers": workers,
            "scheme": scheme,
            "slice_mb": slice_mb,
            "load": load,
        }
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Paceline:
        try:
            address = self._hear(self._start("serve"))
            for rank in range(int(str(self._job["workers"]))):
                self._start("work", rank=rank, address=address)
            for worker in self._processes[1:]:
                self._hear(worker)
        except BaseException:
            self.__exit__()
            raise
        return self

    def exchange(self, times: int) -> list[float]:
        """Seconds of each of `times` exchanges (push and pull of the whole vector), of the slowest worker each."""
        for worker in self._processes[1:]:
            assert worker.stdin is not None
            worker.stdin.write(f"go {times}\n")
            worker.stdin.flush()
        each = [json.loads(self._hear(worker)) for worker in self._processes[1:]]
        return [max(together) for together in zip(*each, strict=True)]

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):  # the workers first
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.kill()
            process.wait()

    def _start(self, role: str, **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, "--role", role, json.dumps({**self._job, **more})]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        self._processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment))
        return self._processes[-1]

    @staticmethod
    def _hear(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{process.args!r} ended with code {process.wait()}")
        return line.strip()


def time_push_pull(job: Any, times: int = 1) -> float:
    """Median seconds of a push and pull of `job`, a `Paceline` or a peer of its kind."""
    return statistics.median(job.exchange(times))


# ---- the limits ------------------------------------------------------------------------------------------------------
def memory_limit(length: int) -> Callable[[], float]:
    """Seconds of one update from two vectors into a third; call it as often as you like."""
    import torch

    torch.set_num_threads(1)
    w, g, out = torch.zeros(length), torch.ones(length), torch.zeros(length)

    def once() -> float:
        began = time.perf_counter()
        torch.add(w, g, alpha=-0.01, out=out)
        return time.perf_counter() - began

    return once


class RawSocket:
    """Another process that takes `nbytes` bytes over the loopback address and then sends as many back."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._buffer = _buffer(nbytes)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            job = json.dumps({"port": listener.getsockname()[1], "nbytes": nbytes})
            self._process = subprocess.Popen([sys.executable, __file__, "--role", "echo", job])
            self._sock, _ = listener.accept()
        _widen(self._sock)

    def once(self) -> float:
        """Seconds both ways, one after the other."""
        began = time.perf_counter()
        _send(self._sock, self._buffer)
        _receive(self._sock, self._buffer)
        return time.perf_counter() - began

    def close(self) -> None:
        self._sock.close()
        self._process.wait()


def echo(job: dict[str, Any]) -> None:
    buffer = _buffer(job["nbytes"])
    with socket.create_connection(("127.0.0.1", job["port"])) as sock:
        _widen(sock)
        while _receive(sock, buffer):
            _send(sock, buffer)


def _buffer(nbytes: int) -> memoryview:
    """In huge pages where the system has them, and all of it there."""
    room = mmap.mmap(-1, nbytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    room[:] = bytes(nbytes)
    return memoryview(room)


def _widen(sock: socket.socket) -> None:
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)


def _send(sock: socket.socket, data: memoryview) -> None:
    while data.nbytes:
        data = data[sock.sendmsg([data[:PIECE_BYTES]]) :]


def _receive(sock: socket.socket, data: memoryview) -> bool:
    while data.nbytes:
        n = sock.recv_into(data[:PIECE_BYTES])
        if not n:
            return False
        data = data[n:]
    return True


# ---- the run ---------------------------------------------------------------------------------------------------------
def measure(transports: Sequence[str], slices_mb: dict[str, float], length: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each transport: median seconds, the limit's, and the ratio."""
    limits: dict[str, Callable[[], float]] = {"shm": memory_limit(length)}
    raw = RawSocket(FLOAT_BYTES * length)
    limits["tcp"] = raw.once
    rows = []
    try:
        for transport in transports:
            slice_mb = slices_mb.get(transport, 0.0)
            ours, bound = [], []
            with Paceline(transport, length, slice_mb=slice_mb) as job:
                time_push_pull(job, 3)  # warm
                limits[transport]()
                for _ in range(rounds):
                    ours.append(time_push_pull(job))
                    bound.append(limits[transport]())
            seconds, limit = statistics.median(ours), statistics.median(bound)
            rows.append(
                {
                    "transport": transport,
                    "slice_mb": slice_mb,
                    "bytes": FLOAT_BYTES * length,
                    "seconds_median": seconds,
                    "seconds_limit": limit,
                    "ratio": seconds / limit,
                    "claimed": BOUNDS[transport],
                }
            )
    finally:
        raw.close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", type=float, default=100.0, help="size of the model, in millions of bytes")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each, in turn")
    parser.add_argument("--transports", default="shm,tcp", help="which, e.g. tcp")
    parser.add_argument("--slice-mb", default="shm=0,tcp=4", help="MiB of a slice by transport; 0: the whole vector")
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--role", nargs=2, metavar=("ROLE", "JOB"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        role, job = options.role
        {"serve": serve, "work": work, "echo": echo}[role](json.loads(job))
        return 0
    slices_mb = {name: float(mb) for name, _, mb in (part.partition("=") for part in options.slice_mb.split(","))}
    length = round(options.mbytes * 1e6 / FLOAT_BYTES)
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {options.mbytes:g} MB of float32, {options.rounds} rounds")
    rows = measure(options.transports.split(","), slices_mb, length, options.rounds)
    print(f"{'transport':<10}{'slice MiB':>10}{'push+pull ms':>14}{'limit ms':>10}{'ratio':>7}{'claimed':>9}")
    for row in rows:
        print(
            f"{row['transport']:<10}{row['slice_mb'] or 'whole':>10}{row['seconds_median'] * 1e3:>14.1f}"
            f"{row['seconds_limit'] * 1e3:>10.1f}{row['ratio']:>7.2f}{row['claimed']:>9.2f}"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2))
    holds = all(row["ratio"] <= row["claimed"] for row in rows)
    print("the claims hold" if holds else "NOT ALL CLAIMS HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
