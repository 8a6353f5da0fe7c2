"""Hostile bytes: 1,000,000 damaged frames into the decoders, and strangers who keep a run's doors busy.

Decoders: frames of real messages with bytes changed, cut off, or with headers of random bytes, well-formed or not; each
is refused as a ProtocolError or is a message within the limits, and memory stays as it is.

Doors: one `paceline train --tls on` on this machine. For --seconds at a time, in turn with quiet, a process of its own
keeps --connections connections to all ports of the run that never begin a handshake, called again when they are closed,
and 50 more that send a byte every 0.2 s. It has the lowest priority: strangers bring computers of their own.

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
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec

from paceline.core.errors import ProtocolError
from paceline.core.mean import Part
from paceline.engine.vector import Flat, FlatMemory
from paceline.live import control, wire
from paceline.live.transport import Envelope, Kind

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
        (Kind.CONTROL, control.Gone(rank=1)),
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


# ---- doors -------------------------------------------------------------------------------------------------------
def descendants(root: int) -> list[int]:
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


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


def doors(options: argparse.Namespace, out: Path) -> bool:
    train = [
        sys.executable,
        "-m",
        "paceline",
        "train",
        "--scheme",
        "bsp",
        "--workers",
        "2",
        "--tls",
        "on",
        "--step-ms",
        "10",
    ]
    train += ["--epochs", "0", "--seconds", "100000", "--eval-every", "5", "--restarts", "0", "--out", str(out)]
    run = subprocess.Popen(train, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    trace, began, turns = Trace(out / "trace.jsonl"), time.monotonic(), []
    while len(trace.updates()) < 200:
        if run.poll() is not None or time.monotonic() - began > 120:
            raise SystemExit("the run did not get under way")
        threading.Event().wait(0.2)
    pids = descendants(run.pid)
    before = memory(pids)
    seconds: tuple[list[float], list[float]] = ([], [])  # of CPU a second, quiet and busy
    for turn in range(2 * options.turns):
        knocking = [
            sys.executable,
            __file__,
            "--knock",
            ",".join(map(str, ports(pids))),
            "--connections",
            str(options.connections),
        ]
        stranger = subprocess.Popen(knocking) if turn % 2 else None
        threading.Event().wait(1.5)  # until all of them have called
        begin, spent = time.monotonic(), cpu_s(pids)
        threading.Event().wait(options.seconds)
        turns.append((turn % 2, begin, time.monotonic()))
        seconds[turn % 2].append((cpu_s(pids) - spent) / options.seconds)
        trace.updates()
        if stranger:
            stranger.kill()
            stranger.wait()
    after = memory(pids)
    alive = run.poll() is None
    run.send_signal(signal.SIGINT)
    run.wait(60)
    quiet, busy = (statistics.median(trace.step_s(b, e) for k, b, e in turns if k == kind) for kind in (0, 1))
    lost = sum('"lost"' in line for line in (out / "trace.jsonl").read_text().splitlines() if '"membership"' in line)
    slower = f"step {1000 * quiet:.2f} ms quiet, {1000 * busy:.2f} ms busy ({100 * (busy / quiet - 1):+.1f} %)"
    grown = f"memory {before / 2**20:.0f} to {after / 2**20:.0f} MiB"
    print(f"doors: {options.connections:,} that say nothing and {SLOW} that say a byte at a time")
    print("  the run uses {:.2f} CPUs quiet, {:.2f} busy".format(*map(statistics.median, seconds)))
    print(f"  {slower}; {grown}; parties lost: {lost}{'' if alive else '; the run ENDED'}")
    return alive and not lost and busy <= STEP_BOUND * quiet and after <= MEMORY_BOUND * before


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
