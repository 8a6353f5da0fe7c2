"""Strangers at every listener: how long a rightful caller waits beside idle connections, and what TLS hellos cost.

python benchmarks/idle_connections.py [--only door,page] [--connections 1000] [--calls 20]

Idle connections: each listener is in a process of its own. Another process keeps --connections connections to it that
never say anything (`silent`) or one byte (`one byte`), and calls again when one is closed. Beside them somebody who
belongs there calls --calls times and is answered. The listeners: a party of a run (coordinator, server, worker,
evaluator and key-value store have the same listener) over TCP, under TLS and over its Unix socket; the launcher's
listener for agents and for processes started by hand; the live page.

TLS hellos: for --seconds a process sends --hellos first messages of a handshake each second to a party, and goes no
further. Said is the share of that time that the thread which moves bytes was on a CPU, and that of other threads.

Claims: with idle connections a rightful caller waits less than 1 s longer; hellos take less than 2 % of the time of the
thread that moves bytes. Exit code 1 when one fails. Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import queue
import resource
import selectors
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DELAY_MAX_S, SHARE_MAX = 1.0, 0.02
PATIENCE_S = 60.0
TOKEN = "the token of this run"
AGAIN_S = 0.05  # between two looks of the strangers at who was closed


# ---- the listeners, each in a process of its own -----------------------------------------------------------------
class Party:
    """A server of a run that answers whoever says something."""

    def __init__(self, how: str, folder: Path) -> None:
        import paceline.core.coordination.control_messages  # noqa: F401  the words that are heard here
        from paceline.core.coordination.party import COORDINATOR, server, worker
        from paceline.live.net.tcp_transport import TcpTransport
        from paceline.live.numpy_memory import PlainMemory
        from paceline.live.same_host.shared_memory import segments_for
        from paceline.live.security.certificate_authority import CertificateAuthority
        from paceline.live.security.tls import Tls

        me = server(0)
        if how == "tls":
            CertificateAuthority().write(folder / "keys", [COORDINATOR, me, *map(worker, range(1000))])
        self.transport = TcpTransport(
            me,
            TOKEN,
            PlainMemory(),
            tls=Tls(folder / "keys", me) if how == "tls" else None,
            segments=segments_for("shm") if how == "unix" else None,
        )
        self.transport.open(Echo(self.transport))
        self.told = {"address": self.transport.address}

    def close(self) -> None:
        self.transport.close()


class Echo:
    """A handler that says back what it hears, and keeps it."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def deliver(self, src: Any, envelope: Any) -> None:
        self.heard.put(envelope)
        if self._transport.me.kind == "server":
            self._transport.send(src, envelope)

    def room_for(self, *_: Any) -> list[Any]:
        raise AssertionError

    def lost(self, *_: Any) -> None:
        self.heard.put(None)

    def failed(self, error: BaseException) -> None:
        raise error


class Launcher:
    """Who waits for agents, and beats to those that came."""

    def __init__(self) -> None:
        from paceline.launch.remote.callback_listener import CallbackListener

        self._admission = CallbackListener("127.0.0.1")
        told = json.loads(self._admission.ticket)
        self.told = {"address": f"{told['host']}:{told['port']}", "ticket": self._admission.ticket}
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        from paceline.launch.remote.agent_messages import Begun

        while (caller := self._admission.caller()) is not None:
            caller[0].say(Begun(address=""))

    def close(self) -> None:
        self._admission.close()


class Page:
    """The live page of a run that has only begun."""

    def __init__(self, folder: Path) -> None:
        from paceline.observe.watch.serving.server import serve

        (folder / "trace.jsonl").write_text("")
        said: queue.SimpleQueue[str] = queue.SimpleQueue()
        owned, self._owner = os.pipe()
        pipe = os.fdopen(owned, "rb", buffering=0)
        threading.Thread(
            target=serve, args=(folder, dict), kwargs={"owner": pipe, "ready": said.put}, daemon=True
        ).start()
        address, _, token = said.get(timeout=PATIENCE_S).removeprefix("http://").partition("/?token=")
        self.told = {"address": address, "token": token}

    def close(self) -> None:
        os.close(self._owner)


def listener(kind: str, folder: Path) -> Any:
    return Page(folder) if kind == "page" else Launcher() if kind == "door" else Party(kind, folder)


def cpu_s() -> dict[str, float]:
    """CPU seconds so far of the thread that moves bytes, and of the process."""
    net = [thread for thread in threading.enumerate() if thread.name.startswith("net of")]
    clocks = [time.clock_gettime(time.pthread_getcpuclockid(thread.ident)) for thread in net if thread.ident]
    return {"net": sum(clocks), "all": time.process_time()}


def listen(kind: str, folder: Path) -> None:
    """Until the input ends; says what the listener is, and with each line that comes what its threads have used."""
    made = listener(kind, folder)
    print(json.dumps(made.told), flush=True)
    for _ in sys.stdin:
        print(json.dumps(cpu_s()), flush=True)
    made.close()
    os._exit(0)


# ---- strangers ---------------------------------------------------------------------------------------------------
def connected(address: str) -> socket.socket:
    if "unix:" in address:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(1.0)
        sock.connect("\0" + address.partition("unix:")[2].partition("@")[0])
        return sock
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=1.0)


def hold(address: str, connections: int, first: bytes) -> None:
    """For ever: so many callers who say `first` and nothing else."""
    held: set[socket.socket] = set()
    selector = selectors.DefaultSelector()
    for turn in itertools.count():
        for _ in range(connections - len(held)):
            with contextlib.suppress(OSError):
                sock = connected(address)
                sock.sendall(first)
                sock.setblocking(False)
                held.add(sock)
                selector.register(sock, selectors.EVENT_READ)
        if not turn:
            print("there", flush=True)
        for key, _ in selector.select(0):
            gone = key.fileobj
            assert isinstance(gone, socket.socket)
            with contextlib.suppress(BlockingIOError):
                try:
                    if gone.recv(4096):
                        continue
                except ConnectionError:
                    pass
                selector.unregister(gone)
                held.discard(gone)
                gone.close()
        threading.Event().wait(AGAIN_S)


def first_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def greet(address: str, a_second: int) -> None:
    """For ever: so many hellos a second, each on its own connection; says when asked how many were answered."""
    hello, answered = first_hello(), [0]

    def one() -> None:
        with contextlib.suppress(OSError), connected(address) as sock:
            sock.sendall(hello)
            answered[0] += bool(sock.recv(1))

    def asked() -> None:
        for _ in sys.stdin:
            print(answered[0], flush=True)

    threading.Thread(target=asked, daemon=True).start()
    begin = time.monotonic()
    for n in itertools.count(1):
        threading.Thread(target=one, daemon=True).start()
        threading.Event().wait(max(0.0, begin + n / a_second - time.monotonic()))


# ---- who belongs there -------------------------------------------------------------------------------------------
def party_call(kind: str, told: dict[str, Any], folder: Path) -> Callable[[], None]:
    from paceline.core.coordination.control_messages import Total
    from paceline.core.coordination.party import server, worker
    from paceline.live.net.tcp_transport import TcpTransport
    from paceline.live.numpy_memory import PlainMemory
    from paceline.live.protocol.transport import Envelope, Kind
    from paceline.live.same_host.shared_memory import segments_for
    from paceline.live.security.tls import Tls

    ranks = itertools.count()

    def call() -> None:
        me = worker(next(ranks))
        tls = Tls(folder / "keys", me) if kind == "tls" else None
        segments = segments_for("shm") if kind == "unix" else None
        transport = TcpTransport(me, TOKEN, PlainMemory(), tls=tls, segments=segments)
        echo = Echo(transport)
        transport.open(echo)
        try:
            transport.connect(server(0), told["address"])
            transport.send(server(0), Envelope(Kind.CONTROL, Total(samples=1)))
            if echo.heard.get(timeout=PATIENCE_S) is None:
                raise ConnectionError("sent away")
        finally:
            transport.close()

    return call


def agent_call(told: dict[str, Any]) -> Callable[[], None]:
    from paceline.launch.remote.agent import hello
    from paceline.launch.remote.callback_listener import enter_once
    from paceline.launch.remote.message_stream import hang_up

    def call() -> None:
        lines, _ = enter_once(told["ticket"], hello)
        hang_up(lines)

    return call


def page_call(told: dict[str, Any]) -> Callable[[], None]:
    def call() -> None:
        page = http.client.HTTPConnection(told["address"], timeout=PATIENCE_S)
        page.request("GET", f"/?token={told['token']}")
        answer = page.getresponse()
        answer.read()
        page.close()
        if answer.status != 303:
            raise ConnectionError(f"answered {answer.status}")

    return call


def caller(kind: str, told: dict[str, Any], folder: Path) -> Callable[[], None]:
    return page_call(told) if kind == "page" else agent_call(told) if kind == "door" else party_call(kind, told, folder)


# ---- measuring ---------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def child(*words: str) -> Iterator[subprocess.Popen[str]]:
    """This script again, whose first line has been written."""
    command = [sys.executable, __file__, *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line_of(process: subprocess.Popen[str], ask: bool = False) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    if ask:
        process.stdin.write("?\n")
        process.stdin.flush()
    return json.loads(process.stdout.readline())


def calls(call: Callable[[], None], count: int) -> tuple[list[float], int]:
    """Seconds of each call, and how many came to nothing."""
    seconds, failed = [], 0
    for _ in range(count):
        begin = time.monotonic()
        try:
            call()
        except Exception as error:
            failed += 1
            print(f"    failed after {time.monotonic() - begin:.2f} s: {type(error).__name__}: {error}")
        seconds.append(time.monotonic() - begin)
    return seconds, failed


def say(kind: str, how: str, seconds: list[float], failed: int) -> None:
    middle, longest = 1e3 * statistics.median(seconds), 1e3 * max(seconds)
    print(f"{kind:5}  {how:10}  median {middle:6.1f} ms, longest {longest:7.1f} ms, {failed} failed", flush=True)


def idle(kind: str, options: argparse.Namespace) -> bool:
    well = True
    with tempfile.TemporaryDirectory() as name, child("--listen", kind, "--folder", name) as listening:
        told, folder = line_of(listening), Path(name)
        call = caller(kind, told, folder)
        calls(call, 3)
        quiet, _ = calls(call, options.calls)
        print(
            f"{kind:5}  alone       median {1e3 * statistics.median(quiet):6.1f} ms, longest {1e3 * max(quiet):7.1f} ms"
        )
        for how, first in (("silent", ""), ("one byte", "16")):
            words = ("--hold", told["address"], "--connections", str(options.connections), "--first", first)
            with child(*words) as strangers:
                assert strangers.stdout is not None
                strangers.stdout.readline()
                seconds, failed = calls(call, options.calls)
            delay = max(seconds) - statistics.median(quiet)
            well &= delay < DELAY_MAX_S and not failed
            middle, longest = 1e3 * statistics.median(seconds), 1e3 * max(seconds)
            print(
                f"{kind:5}  {how:10}  median {middle:6.1f} ms, longest {longest:7.1f} ms, {failed} failed", flush=True
            )
    return well


def hellos(options: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as name, child("--listen", "tls", "--folder", name) as listening:
        told = line_of(listening)
        with child("--greet", told["address"], "--hellos", str(options.hellos)) as strangers:
            threading.Event().wait(1.0)
            answered, used, begin = line_of(strangers, ask=True), line_of(listening, ask=True), time.monotonic()
            threading.Event().wait(options.seconds)
            after, seconds = line_of(listening, ask=True), time.monotonic() - begin
            answered = line_of(strangers, ask=True) - answered
    net = (after["net"] - used["net"]) / seconds
    others = (after["all"] - used["all"]) / seconds - net
    print(
        f"hellos: {answered} answered in {seconds:.1f} s; {net:.1%} of the time of the thread that moves bytes, "
        f"{others:.1%} of a core on other threads"
    )
    return net < SHARE_MAX


KINDS = ("tcp", "tls", "unix", "door", "page", "hellos")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--hellos", type=int, default=274)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--listen", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    parser.add_argument("--first", default="", help=argparse.SUPPRESS)
    parser.add_argument("--greet", help=argparse.SUPPRESS)
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, max(4096, 2 * options.connections)), limit))
    if options.listen:
        listen(options.listen, options.folder)
    if options.hold:
        hold(options.hold, options.connections, bytes.fromhex(options.first))
    if options.greet:
        greet(options.greet, options.hellos)
    well = [hellos(options) if kind == "hellos" else idle(kind, options) for kind in options.only.split(",")]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
