"""Hostile bytes: 1,000,000 damaged frames into the decoders, and strangers who keep a run's listeners busy.

Decoders: frames of real messages with bytes changed, cut off, or with headers of random bytes, well-formed or not; each
is refused as a ProtocolError or is a message within the limits, and memory stays as it is.

Doors: one `paceline train --tls on --watch` on this machine. For --seconds at a time, in turn with quiet, a process of
its own keeps --connections connections to all ports of the run and its page that never begin a handshake, called again
when they are closed, and 50 more that send a byte every 0.2 s. It has the lowest priority: strangers bring computers of
their own.

Claims: nothing but ProtocolError, and the run goes on; memory grows by less than 5 % (decoders: 8 MiB); a step takes at
most 10 % longer than in the quiet (medians of the turns). Exit code 1 when one fails. Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from _processes import descendants, training, under_way

from paceline.core.collective.mean_server import Part
from paceline.core.coordination import control_messages as control
from paceline.core.errors import ProtocolError
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.live.protocol import frames as wire
from paceline.live.protocol.transport import Envelope, Kind

BODY_BYTES_MAX = 1 << 20
SLOW = 50
STEP_BOUND, MEMORY_BOUND, DECODERS_BYTES = 1.10, 1.05, 8 << 20


# ---- decoders ----------------------------------------------------------------------------------------------------
def frames() -> list[bytes]:
    import torch

    part = Part(v=Flat.wrap(torch.zeros(3)), among=(0, 1), tag="t", weight=1.0)
    messages = [
        (Kind.CALL, part),
        (Kind.CONTROL, control.Hello(address="127.0.0.1:1", pid=1, host="here", device="cpu")),
        (Kind.CONTROL, control.Roster(addresses={"worker 0": "a"}, hosts={"worker 0": "b"})),
        (Kind.CONTROL, control.WorkerLeft(rank=1)),
        (Kind.CONTROL, control.Stop(reason="seconds")),
    ]
    return [wire.encode(Envelope(kind, message), FlatMemory())[0].tobytes() for kind, message in messages]


def damaged(rng: random.Random, good: list[bytes]) -> bytes:
    frame = bytearray(rng.choice(good))
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(frame[: rng.randrange(len(frame))])
    if kind == 1:
        head = rng.randbytes(rng.randrange(200))
    elif kind == 2:
        head = msgspec.msgpack.encode(
            [rng.choice(["control.Hello", "mean.Part", 7]), [rng.getrandbits(40)], [None] * rng.randrange(9)]
        )
    else:
        for _ in range(rng.randrange(1, 6)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        return bytes(frame)
    return wire.PREFIX.pack(wire.MAGIC, wire.VERSION, Kind.CONTROL, 0, len(head), 0, rng.choice((0, 4, 1 << 63))) + head


def decode(frame: bytes) -> bool:
    """Was it a message? Any error but ProtocolError ends the benchmark."""
    try:
        if len(frame) < wire.PREFIX.size:
            raise ProtocolError("too short")
        prefix = wire.decode_prefix(frame[: wire.PREFIX.size], BODY_BYTES_MAX)
        header = wire.decode_header(frame[wire.PREFIX.size :][: prefix.header_bytes], prefix.body_bytes)
    except ProtocolError:
        return False
    if not any(header.places) and not any(header.forms) and sum(header.lengths) * wire.ITEM_BYTES > BODY_BYTES_MAX:
        raise SystemExit(f"more than the limit was let in: {frame!r}")
    return True


def decoders(cases: int) -> bool:
    rng, good, taken = random.Random("hostile"), frames(), 0
    assert all(map(decode, good))
    for _ in range(cases // 10):
        taken += decode(damaged(rng, good))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for _ in range(cases - cases // 10):
        taken += decode(damaged(rng, good))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    well = grown <= DECODERS_BYTES
    rest = f"{taken:,} of them still messages, all others refused"
    print(f"decoders: {cases:,} frames, {rest}; memory +{grown / 2**20:.1f} MiB", flush=True)
    return well


# ---- listeners -------------------------------------------------------------------------------------------------------
def ports(pids: list[int]) -> list[int]:
    """On which these processes listen."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {row[9]: int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
            found |= {listening[link[8:-1]] for link in links if link[8:-1] in listening}
    return sorted(found)


def knock(doors: list[int], connections: int) -> None:
    """For ever: so many callers that say nothing, and SLOW that say a byte at a time."""
    os.nice(19)
    hello = b"\x16\x03\x01\x02\x00" + bytes(512)  # how a handshake begins
    held: dict[socket.socket, int] = {}
    with selectors.DefaultSelector() as selector:
        while True:
            for n in range(connections + SLOW - len(held)):
                with contextlib.suppress(OSError):
                    sock = socket.create_connection(("127.0.0.1", doors[n % len(doors)]), timeout=1.0)
                    sock.setblocking(False)
                    held[sock] = 0
                    selector.register(sock, selectors.EVENT_READ)
            for key, _ in selector.select(0):
                gone = key.fileobj
                assert isinstance(gone, socket.socket)
                selector.unregister(gone)
                del held[gone]
                gone.close()
            for sock in list(held)[:SLOW]:
                with contextlib.suppress(OSError):
                    held[sock] += sock.send(hello[held[sock] % len(hello) :][:1])
            threading.Event().wait(0.2)


def memory(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return total


def cpu_s(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Trace:
    """What the run tells, and how its clock goes against ours."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, float("inf")

    def updates(self) -> list[float]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        found = [
            json.loads(line)["at"] for line in lines if line.startswith('{"kind":"applied"') and line.endswith("}")
        ]
        if found:
            self._offset = min(self._offset, time.monotonic() - max(found))
        return found

    def step_s(self, begin: float, end: float) -> float:
        """Between two updates, in that time of ours."""
        inside = sorted(at for at in self.updates() if begin <= at + self._offset <= end)
        return (inside[-1] - inside[0]) / (len(inside) - 1)


@contextlib.contextmanager
def strangers(doors: list[int], connections: int) -> Iterator[None]:
    """A process of theirs."""
    words = ["--knock", ",".join(map(str, doors)), "--connections", str(connections)]
    process = subprocess.Popen([sys.executable, __file__, *words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@dataclass
class Seen:
    """Of the turns of one kind: when they were, and the CPUs that the run used."""

    turns: list[tuple[float, float]] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)

    def watch(self, pids: list[int], trace: Trace, seconds: float) -> None:
        threading.Event().wait(1.5)  # until all strangers have called
        begin, spent = time.monotonic(), cpu_s(pids)
        threading.Event().wait(seconds)
        self.turns.append((begin, time.monotonic()))
        self.cpus.append((cpu_s(pids) - spent) / seconds)
        trace.updates()

    def step_ms(self, trace: Trace) -> float:
        return 1000 * statistics.median(trace.step_s(begin, end) for begin, end in self.turns)


def doors(options: argparse.Namespace, out: Path) -> bool:
    trace, quiet, busy = Trace(out / "trace.jsonl"), Seen(), Seen()
    words = ("--scheme", "bsp", "--workers", "2", "--tls", "on", "--eval-every", "5", "--restarts", "0", "--watch")
    with training(out, *words) as run:
        under_way(run, out, updates=200)
        pids = descendants(run.pid)
        before = memory(pids)
        for _ in range(options.turns):
            quiet.watch(pids, trace, options.seconds)
            with strangers(ports(pids), options.connections):
                busy.watch(pids, trace, options.seconds)
        after, alive = memory(pids), run.poll() is None
    lost = sum('"lost"' in line for line in (out / "trace.jsonl").read_text().splitlines() if '"membership"' in line)
    calm, hard = quiet.step_ms(trace), busy.step_ms(trace)
    print(f"doors: {options.connections:,} that say nothing and {SLOW} that say a byte at a time")
    print("  the run uses {:.2f} CPUs quiet, {:.2f} busy".format(*(statistics.median(s.cpus) for s in (quiet, busy))))
    slower = f"step {calm:.2f} ms quiet, {hard:.2f} ms busy ({100 * (hard / calm - 1):+.1f} %)"
    grown = f"memory {before / 2**20:.0f} to {after / 2**20:.0f} MiB"
    print(f"  {slower}; {grown}; parties lost: {lost}{'' if alive else '; the run ENDED'}")
    return alive and not lost and hard <= STEP_BOUND * calm and after <= MEMORY_BOUND * before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000_000, help="damaged frames (default: 1000000)")
    parser.add_argument("--connections", type=int, default=1000, help="that say nothing (default: 1000)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of a turn (default: 6)")
    parser.add_argument("--turns", type=int, default=3, help="of quiet, and as many of strangers (default: 3)")
    parser.add_argument("--knock", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.knock:
        knock([int(port) for port in options.knock.split(",")], options.connections)
    well = decoders(options.cases)
    with tempfile.TemporaryDirectory(prefix="paceline-") as name:
        well &= doors(options, Path(name) / "run")
    print("as claimed" if well else "NOT as claimed")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
