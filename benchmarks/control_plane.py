"""How many small messages the coordinator takes in a second, and how long its answers take meanwhile.

python benchmarks/control_plane.py [--connections 100] [--bytes 1024] [--seconds 3] [--rounds 5]

A party as the coordinator is one (a node with a role, behind its TCP transport on the loopback address) hears from 100
connections. Every worker repeats: a Tell and a Call of 1 KB each, sent one after the other; then it waits for the
answer. So 100 Calls are open at any time (a closed loop): the rate is what the coordinator can do, not what it is
asked for, and the seconds of a Call are those at that full load, from before its Tell was sent to the last byte of its
answer. The workers are bare sockets in one process of their own, and so share no interpreter lock with the
coordinator, but they do share the machine: on two cores, one is theirs.

Claim: 20,000 messages a second (Tells and Calls, answers not counted), and 99 of 100 Calls answered within 20 ms;
medians of the rounds. Printed as well: how busy the coordinator's process and that of the workers were. Whichever is
close to one core is the limit.
"""

from __future__ import annotations

import argparse
import datetime
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.effects import Reply, Tell
from paceline.core.errors import ProtocolError
from paceline.core.message import message
from paceline.core.role import Role, RoleContext
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.numpy_memory import PlainMemory
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from paceline.live.security.handshake import Greeting, greet, new_nonce

MESSAGES_PER_SECOND = 20_000
P99_SECONDS_MAX = 0.020
TOKEN = "the token of this run"


@message("control_plane.Report")
class Report:
    """What a worker says: a kilobyte of text, and a few numbers as reports have."""

    clock: int
    seconds: float
    text: str


@message("control_plane.Orders")
class Orders:
    """What it is told."""

    clock: int
    steps: int


class Box(Role):
    """Answers every Call; takes a Tell as it is. `clock` 0 marks a Tell."""

    first = last = 0.0

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        self.first, self.last = self.first or now, now
        if message.clock:
            yield Reply(src, Orders(clock=message.clock, steps=1))


class Desk:
    """The coordinator's handler, without the phases of a run. Greetings are the transport's, so all else is scheme."""

    def __init__(self, node: Node) -> None:
        self.deliver = node.deliver

    def room_for(self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int]) -> list[Any]:
        raise ProtocolError(f"{src} sends vectors to the coordinator")

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        pass  # the end of a round

    def failed(self, error: BaseException) -> None:
        raise error


# ---- the coordinator -------------------------------------------------------------------------------------
class Figures(msgspec.Struct):
    """Of one round. `busy`: seconds of processor for each second that passed; of the workers' process, then ours."""

    messages_per_second: float
    p50: float
    p99: float
    busy_workers: float
    busy_coordinator: float = 0.0


def one_round(connections: int, size: int, seconds: float) -> Figures:
    transport = TcpTransport(party.COORDINATOR, TOKEN, PlainMemory(), body_bytes_max=0)
    node = Node(transport, PlainMemory())
    place = RoleContext(me=0, workers=tuple(range(connections)), w=None, update=lambda w, g, samples: w)
    box = Box(None, place)
    node.place(box)
    transport.open(Desk(node))
    used = time.process_time()
    job = [sys.executable, __file__, "--workers", transport.address, "--connections", str(connections)]
    out = subprocess.run(
        [*job, "--bytes", str(size), "--seconds", str(seconds)],
        check=True,
        stdout=subprocess.PIPE,
        timeout=60 + seconds,
    ).stdout
    figures = msgspec.json.decode(out, type=Figures)
    figures.busy_coordinator = (time.process_time() - used) / (box.last - box.first)
    transport.close()
    return figures


# ---- the workers -----------------------------------------------------------------------------------------
class Worker:
    """One connection: what it sends is encoded once, and only the number of the Call changes."""

    def __init__(self, rank: int, address: str, size: int) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = Greeting(party=str(party.worker(rank)), to=str(party.COORDINATOR), nonce=new_nonce())
        greet(self.sock, greeting, TOKEN, PlainMemory(), seconds=30.0)
        self.tell = frame(Envelope(Kind.TELL, Report(clock=0, seconds=0.1, text="x" * size)))
        self.call = bytearray(frame(Envelope(Kind.CALL, Report(clock=1, seconds=0.1, text="x" * size))))
        self.answer_bytes = len(frame(Envelope(Kind.REPLY, Orders(clock=1, steps=1), 1)))
        self.calls, self.missing, self.begun = 0, 0, 0.0
        self.seconds: list[float] = []

    def ask(self) -> None:
        self.calls += 1
        frames.PREFIX.pack_into(self.call, 0, *frames.PREFIX.unpack_from(self.call)[:5], self.calls, 0)
        self.missing, self.begun = self.answer_bytes, time.perf_counter()
        self.sock.sendall(self.tell)
        self.sock.sendall(self.call)

    def hear(self) -> None:
        got = self.sock.recv(self.missing)
        if not got:
            raise SystemExit("the coordinator has hung up")
        self.missing -= len(got)
        if not self.missing:
            self.seconds.append(time.perf_counter() - self.begun)
            self.ask()


def frame(envelope: Envelope) -> bytes:
    return b"".join(frames.encode(envelope, PlainMemory()))


def work(address: str, connections: int, size: int, seconds: float) -> Figures:
    """All workers, one thread."""
    workers = {w.sock.fileno(): w for w in (Worker(rank, address, size) for rank in range(connections))}
    poll = select.epoll()
    for descriptor, each in workers.items():
        poll.register(descriptor, select.EPOLLIN)
        each.ask()
    run(poll, workers, seconds / 5)  # warm-up
    for each in workers.values():
        each.seconds.clear()
    used, began = time.process_time(), time.perf_counter()
    run(poll, workers, seconds)
    passed = time.perf_counter() - began
    taken = sorted(s for each in workers.values() for s in each.seconds)
    return Figures(
        2 * len(taken) / passed,
        taken[len(taken) // 2],
        taken[int(len(taken) * 0.99)],
        (time.process_time() - used) / passed,
    )


def run(poll: select.epoll, workers: dict[int, Worker], seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for descriptor, _ in poll.poll(10.0) or stalled():
            workers[descriptor].hear()


def stalled() -> list[tuple[int, int]]:
    raise SystemExit("no answer for 10 s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=100, help="workers")
    parser.add_argument("--bytes", type=int, default=1024, help="of text in a message")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each with a coordinator of its own")
    parser.add_argument("--workers", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.workers:
        figures = work(options.workers, options.connections, options.bytes, options.seconds)
        sys.stdout.buffer.write(msgspec.json.encode(figures))
        return 0
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {options.connections} connections, {options.bytes} bytes")
    rounds = [one_round(options.connections, options.bytes, options.seconds) for _ in range(options.rounds)]
    print(f"{'':<24}{'median':>9}  rounds")
    for what, unit, of in (
        ("messages a second", 1.0, lambda r: r.messages_per_second),
        ("a Call, median, ms", 1e3, lambda r: r.p50),
        ("a Call, 99 of 100, ms", 1e3, lambda r: r.p99),
        ("coordinator, cores", 1.0, lambda r: r.busy_coordinator),
        ("workers, cores", 1.0, lambda r: r.busy_workers),
    ):
        figures = [unit * of(r) for r in rounds]
        print(f"{what:<24}{statistics.median(figures):>9,.4g}  {' '.join(f'{x:,.4g}' for x in figures)}")
    rate = statistics.median(r.messages_per_second for r in rounds)
    p99 = statistics.median(r.p99 for r in rounds)
    holds = rate >= MESSAGES_PER_SECOND and p99 <= P99_SECONDS_MAX
    claim = f"{MESSAGES_PER_SECOND:,} messages a second, 99 of 100 Calls within {P99_SECONDS_MAX * 1e3:.0f} ms"
    print(f"claimed: {claim}: {'holds' if holds else 'DOES NOT HOLD'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
