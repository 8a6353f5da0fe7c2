"""Measures latency and bandwidth to another machine, as workers do before training (`live/control/link_probe.py`).

Two processes, each with the credentials of one party that both derive from the same secret, connect as a worker and a
server of a run do between hosts: one TCP connection under TLS 1.3, more streams where one does not fill the link.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from paceline.bench.bare_party import TIMEOUT_S, Ears
from paceline.bench.links import TRIES, Seconds
from paceline.bench.result import FLOAT_BYTES, Figure, Note, timed
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, PeerLost
from paceline.engine.vectors.flat import FlatMemory
from paceline.live.control.link_probe import timed_looks
from paceline.live.net.dialer import CONNECT_SECONDS
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.node.published_state import FREIGHT_LENGTH
from paceline.live.security.certificate_authority import CertificateAuthority, derived
from paceline.live.security.tls import Tls

SHOWS, ASKS = party.server(0), party.worker(0)
"""The two parties of the measurement: the one that answers is a server, the one that asks a worker."""
FREIGHT_BYTES = FLOAT_BYTES * FREIGHT_LENGTH
LIMIT = "a TCP connection there, opened: one round trip"
"""What the figures are compared with, as the table names it."""


def place_of(address: str) -> tuple[str, int]:
    """Returns host and port of `10.0.0.5:4711` or `[fd00::5]:4711`. Raises ConfigError for another text."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{address!r}: give a host and a port, such as 10.0.0.5:4711")
    return host.strip("[]"), int(port)


@contextlib.contextmanager
def showing(address: str, secret: str) -> Iterator[str]:
    """Lets others with the secret measure the way from here, as long as it lasts; gives the address with its port.

    Raises ConfigError for an address at which nothing can listen.
    """
    host, port = place_of(address)
    try:
        with _there(SHOWS, secret, host, port) as (_, way):
            yield way.address
    except OSError as error:
        raise ConfigError(f"--serve {address}: {error.strerror or error}") from None


def serve(address: str, secret: str, over: threading.Event) -> None:
    """Prints what to type on the other machine, and answers its measurements until `over` is set."""
    with showing(address, secret) as place:
        print(f"listening on {place}, under TLS; on the other machine, with the same token:", flush=True)
        print(f"  paceline bench links --to {place}", flush=True)
        over.wait()


def measure(address: str, secret: str, rounds: int, note: Note) -> Iterator[Figure]:
    """Yields two figures of the way from there: nothing, and a megabyte. Raises PeerLost where nobody shows them."""
    host, port = place_of(address)
    with _there(ASKS, secret, "127.0.0.1", 0) as (node, way):
        try:
            way.connect(SHOWS, address)
        except PeerLost as error:
            raise PeerLost(f"{error}; is `paceline bench links --serve` running there, with the same token?") from None
        ours: list[Seconds] = []
        bound: list[float] = []
        for number in range(rounds + 1):  # the first warms up
            note(f"links to {address}: round {number} of {rounds}")
            ours.append(timed_looks(node, SHOWS, TRIES))
            bound.append(min(timed(lambda: _open(host, port)) for _ in range(TRIES)))
    for which, (what, nbytes) in enumerate((("nothing", 0), ("a megabyte", FREIGHT_BYTES))):
        reached = [seconds[which] for seconds in ours[1:]]
        yield Figure.of(
            f"ask {address} for {what}", LIMIT, nbytes, reached, bound[1:], transport="tcp", tls=True, rounds=rounds
        )


def link_text(nothing: Figure, megabyte: Figure) -> str:
    """Returns latency and bandwidth in words, computed as `--allreduce auto` and `--shards measured` do.

    The time of an empty message is taken off that of a megabyte; half of it is the latency of one way.
    """
    seconds = max(megabyte.seconds_median - nothing.seconds_median, 1e-9)
    speed = megabyte.nbytes / seconds / 1e6
    return (
        f"from there to here: {nothing.seconds_median / 2 * 1e3:.3g} ms one way, {speed:.3g} MB/s "
        f"({speed * 8 / 1e3:.2g} Gbit/s)"
    )


def _open(host: str, port: int) -> None:
    """Opens a TCP connection and closes it, which takes one round trip."""
    socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()


@contextlib.contextmanager
def _there(who: Party, secret: str, host: str, port: int) -> Iterator[tuple[Node, TcpTransport]]:
    """Gives a node and its transport under TLS, whose key and certificate follow from the secret."""
    import paceline.schemes  # noqa: F401  enters the catalogue

    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "credentials"
        CertificateAuthority(secret).write(keys, [who])
        token = derived(secret, "links", 16).hex()
        way = TcpTransport(who, token, FlatMemory(), host=host, port=port, tls=Tls(keys, who))
        node = Node(way, FlatMemory(), timeout_s=TIMEOUT_S)
        way.open(Ears(node))
        try:
            yield node, way
        finally:
            way.close()
