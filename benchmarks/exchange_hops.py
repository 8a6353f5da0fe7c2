"""Where the time of a small push and pull goes: hop by hop, in calls, system calls and switches of threads.

python benchmarks/exchange_hops.py [--mbytes 0.1,0.25,1] [--rounds 30] [--transports shm,tcp] [--parts times,counts]

One worker, one server, ASP, plain SGD, one process each, as in `benchmarks/exchange.py`. Three parts:

  times    push and pull in turn with plain sockets over the loopback address and with the least that Python needs for
           it (`_bare_exchange.py`), 20 of each a round
  hops     the median moments of one exchange in both processes, in microseconds since the worker began
  counts   of one exchange, worker and server: calls of Python functions, calls of built-in ones, those of them that
           enter the kernel, voluntary switches of threads, and microseconds of processor time

Counts do not depend on how busy the machine is; times do, so both sides take turns and the ratio counts. `hops` and
`counts` are of the first size. Waits for locks are no calls of their own here; the switches count them. The claims:
medians by shared memory of at most 0.2 ms (0.1 MB), 0.25 ms (0.25 MB) and 0.4 ms (1 MB), and by TCP of at most 1.6
times plain sockets.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import resource
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from _bare_exchange import BareExchange
from _verdict import verdict

from paceline.bench import exchange
from paceline.bench.exchange import ExchangeJob
from paceline.bench.hardware_limits import RawSockets
from paceline.bench.report import conditions
from paceline.bench.result import FLOAT_BYTES, floats
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.live.net.connection import Connection
from paceline.live.net.frame_reader import FrameReader
from paceline.live.node.node import Node
from paceline.live.protocol.pending_reply import PendingReply

A_ROUND = 20
WARM, MEASURED = 50, 300
"""Exchanges of a pair that come before those that count, and that count."""
CLAIMS_MS = {0.1: 0.2, 0.25: 0.25, 1.0: 0.4}
TCP_RATIO = 1.6
STAMPED: tuple[tuple[type, str, str], ...] = (
    (Node, "advance", "an exchange"),
    (Connection, "send", "encoding and sending"),
    (FrameReader, "read", "reading and what follows from it"),
    (Node, "deliver", "delivering"),
    (ClockedServer, "on", "the server's box"),
    (PendingReply, "wait", "waiting for the answer"),
)
"""Methods whose begin and end are noted, and what the table calls them."""
KERNEL = ("sendmsg", "recvmsg_into", "recv_into", "epoll.poll", "poll.poll", "epoll.register", "epoll.unregister")
KERNEL += ("epoll.modify", "ioctl", "socket.send", "socket.recv", "eventfd_read", "eventfd_write")
"""How the names of built-in functions end that enter the kernel. Locks do so only where they are contended."""


class Stamps:
    """Notes when the methods of STAMPED begin and end, on one clock for all processes."""

    def __init__(self) -> None:
        self.noted: list[tuple[int, str]] = []

    def begin(self) -> None:
        for cls, method, what in STAMPED:
            setattr(cls, method, self._noting(getattr(cls, method), what))

    def _noting(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        noted, now = self.noted, time.perf_counter_ns

        def call(*args: Any, **more: Any) -> Any:
            noted.append((now(), f"{what}: begins"))
            try:
                return function(*args, **more)
            finally:
                noted.append((now(), f"{what}: ends"))

        return call

    def mark(self) -> None:
        """Leaves out what was noted before."""
        self.noted.clear()

    def found(self) -> Any:
        return self.noted


class Calls:
    """Counts calls on all threads that begin from now on, and on this one."""

    def __init__(self) -> None:
        self._counted: collections.Counter[str] = collections.Counter()

    def begin(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._counted["calls"] += 1
        elif event == "c_call":
            self._counted["built-in"] += 1
            self._counted["system calls"] += argument.__qualname__.endswith(KERNEL)

    def mark(self) -> None:
        self._counted.clear()

    def found(self) -> Any:
        sys.setprofile(None)
        return dict(self._counted)


class Switches:
    """Counts voluntary switches of this process's threads, and their processor time."""

    def begin(self) -> None:
        self._before = resource.getrusage(resource.RUSAGE_SELF)

    mark = begin

    def found(self) -> Any:
        now, before = resource.getrusage(resource.RUSAGE_SELF), self._before
        seconds = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
        return {"switches": now.ru_nvcsw - before.ru_nvcsw, "processor us": 1e6 * seconds}


class Lines:
    """Speaks JSON, a line each, over one end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._lines = sock, sock.makefile("r")

    def tell(self, what: Any) -> None:
        self._sock.sendall(f"{json.dumps(what)}\n".encode())

    def hear(self) -> Any:
        return json.loads(self._lines.readline() or "null")


class ServerLines(Lines):
    """What the server's main function speaks with; marks and questions are answered here."""

    def __init__(self, sock: socket.socket, instrument: Any) -> None:
        super().__init__(sock)
        self._instrument = instrument

    def hear(self) -> Any:
        while (what := super().hear()) in ("mark", "found"):
            self.tell(getattr(self._instrument, what)())
        return what


class WorkerLines:
    """What the worker's main function speaks with: it is told to warm up, then to make the exchanges that count."""

    def __init__(self, server: Lines, instrument: Any, report: Lines) -> None:
        self._server, self._instrument, self._report = server, instrument, report
        self._turns = iter((self._address, lambda: WARM, self._measured, self._found))

    def tell(self, what: Any) -> None:
        """Drops what is told: the instrument has what counts."""

    def hear(self) -> Any:
        return next(self._turns)()

    def _address(self) -> Any:
        return [self._server.hear()]

    def _measured(self) -> int:
        self._server.tell("mark")
        self._server.hear()
        self._instrument.mark()
        return MEASURED

    def _found(self) -> None:
        worker = self._instrument.found()
        self._server.tell("found")
        self._report.tell([worker, self._server.hear()])
        raise EOFError


def pair(job: ExchangeJob, instrument: Callable[[], Any]) -> list[Any]:
    """Returns what an instrument found in a worker's process and in its server's."""
    ours, theirs = map(Lines, socket.socketpair())
    plain = {"transport": job.transport, "length": job.length, "me": 0, "credentials": ""}

    def worker() -> None:
        mine, others = socket.socketpair()
        server = forked(lambda: serve(others))
        used = instrument()
        used.begin()
        try:
            exchange.work(dict(plain), WorkerLines(Lines(mine), used, theirs))  # type: ignore[arg-type]
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)

    def serve(sock: socket.socket) -> None:
        used = instrument()
        used.begin()
        exchange.serve(dict(plain), ServerLines(sock, used))  # type: ignore[arg-type]

    child = forked(worker)
    found = ours.hear()
    os.waitpid(child, 0)
    return list(found)


def forked(act: Callable[[], None]) -> int:
    """Returns the process id of a child that does `act` and ends."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(EOFError):
            act()
        os._exit(0)
    return child


class RunningPair:
    """Starts a worker and a server on entry, and ends them on exit.

    Both are forks of this process, as those of a run are forks of one. Their code then lies at the same addresses, so
    where they share a core neither spoils what the branch predictors know of the other.
    """

    def __init__(self, job: ExchangeJob) -> None:
        self._plain = {**dataclasses.asdict(job), "me": 0, "credentials": ""}
        self._children: list[int] = []

    def _started(self, main: Callable[[dict[str, Any], Any], None]) -> Lines:
        """Starts a process that runs `main`; returns what it is spoken with."""
        mine, others = socket.socketpair()
        self._children.append(forked(lambda: main(dict(self._plain), Lines(others))))
        others.close()
        return Lines(mine)

    def __enter__(self) -> RunningPair:
        server, self._worker = self._started(exchange.serve), self._started(exchange.work)
        address = server.hear()
        self._worker.hear()  # that it is here
        self._worker.tell([address])
        self._worker.hear()  # that it is ready
        return self

    def exchange(self, times: int) -> list[float]:
        """Returns the seconds of each of `times` exchanges."""
        self._worker.tell(times)
        return list(self._worker.hear())

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def times(mbytes: float, transports: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each exchange by transport, and of bare Python and plain sockets, in turn."""
    length = floats(mbytes)
    seconds: dict[str, list[float]] = collections.defaultdict(list)
    with contextlib.ExitStack() as held:
        running = {
            name: held.enter_context(RunningPair(ExchangeJob(transport=name, length=length))) for name in transports
        }
        bare = held.enter_context(BareExchange(length))
        raw = held.enter_context(RawSockets(FLOAT_BYTES * length, FLOAT_BYTES * length))
        for number in range(rounds + 1):
            if number == 1:
                seconds.clear()  # the first round warms up
            for name, one in running.items():
                seconds[name] += one.exchange(A_ROUND)
            seconds["bare Python"] += [bare.once() for _ in range(A_ROUND)]
            seconds["plain sockets"] += [raw.once() for _ in range(A_ROUND)]
    return seconds


def print_times(mbytes: float, seconds: dict[str, list[float]]) -> bool:
    """Prints medians and minima; returns True if the claims hold."""
    plain = seconds["plain sockets"]
    holds = True
    for name, each in seconds.items():
        median, ratio = 1e3 * statistics.median(each), statistics.median(each) / statistics.median(plain)
        fast = statistics.quantiles(each, n=10)[0] / statistics.quantiles(plain, n=10)[0]
        print(f"{mbytes:6g} MB  {name:14} {median:8.3f} {1e3 * min(each):8.3f} {ratio:8.2f} {fast:8.2f}", flush=True)
        holds &= not (name == "shm" and median > CLAIMS_MS.get(mbytes, median))
        holds &= not (name == "tcp" and ratio > TCP_RATIO)
    return holds


def print_hops(job: ExchangeJob) -> None:
    """Prints the moments of the most frequent order of events, as medians since the worker began."""
    worker, server = pair(job, Stamps)
    events = sorted([(at, f"worker  {what}") for at, what in worker] + [(at, f"server  {what}") for at, what in server])
    rounds: list[list[tuple[int, str]]] = []
    for at, what in events:
        if what == "worker  an exchange: begins":
            rounds.append([])
        if rounds:
            rounds[-1].append((at, what))
    orders = collections.Counter(tuple(sorted(what for _, what in one)) for one in rounds)
    usual = orders.most_common(1)[0][0]
    since: dict[str, list[float]] = collections.defaultdict(list)
    for one in rounds:
        if tuple(sorted(what for _, what in one)) == usual:
            seen: collections.Counter[str] = collections.Counter()
            for at, what in one:
                seen[what] += 1
                since[what + (f" ({seen[what]})" if seen[what] > 1 else "")].append((at - one[0][0]) / 1e3)
    print(f"\n{job.transport}, the {orders[usual]} of {len(rounds)} exchanges with the usual events:")
    for what, each in sorted(since.items(), key=lambda item: statistics.median(item[1])):
        print(f"{statistics.median(each):8.1f} us  {what}")


def print_counts(job: ExchangeJob) -> None:
    """Prints what one exchange costs each process, as a mean over those that count."""
    found = [dict[str, float](), dict[str, float]()]
    for instrument in (Calls, Switches):
        for side, counted in zip(found, pair(job, instrument), strict=True):
            side.update(counted)
    for name, side in zip(("worker", "server"), found, strict=True):
        each = ", ".join(f"{what} {count / MEASURED:.1f}" for what, count in side.items())
        print(f"{job.transport} {name}: {each}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", default="0.1,0.25,1", help="sizes of the model, in millions of bytes")
    parser.add_argument("--rounds", type=int, default=30, help=f"of {A_ROUND} exchanges of each side")
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--parts", default="times,hops,counts", help="what to measure")
    options = parser.parse_args()
    sizes, transports = [float(size) for size in options.mbytes.split(",")], options.transports.split(",")
    parts = options.parts.split(",")
    print(conditions())
    jobs = [ExchangeJob(transport=name, length=floats(sizes[0])) for name in transports]
    for job in jobs if "counts" in parts else ():
        print_counts(job)
    for job in jobs if "hops" in parts else ():
        print_hops(job)
    if "times" not in parts:
        return 0
    print(f"\n{'':26}{'median ms':>9} {'min ms':>8} {'ratio':>8} {'of fast':>8}")
    held = [print_times(size, times(size, transports, options.rounds)) for size in sizes]
    holds = all(held)
    return verdict(f"by shared memory at most {CLAIMS_MS} (MB: ms), by TCP {TCP_RATIO} times plain sockets", holds)


if __name__ == "__main__":
    sys.exit(main())
