"""Measures latency and bytes a second between two processes of this machine, for each transport.

One process asks another for nothing and for a megabyte, as a worker does that measures its links before training
(`paceline/live/control/link_probe.py`), and waits for the answer on a thread of its own. The limits are:

- nothing: one byte there and one back by a plain socket: by a Unix stream where memory is shared, else by TCP over the
  loopback address.
- a megabyte over TCP: one byte there and as much back by such a socket.
- a megabyte of shared memory: one byte there and back, and a copy of it in memory. It is not copied on its way.

With --tls the limits are the same.

Between two machines: `paceline bench links --serve 10.0.0.5:4711` on the one whose address that is, and
`paceline bench links --to 10.0.0.5:4711` on the other. Both need the same token in the file that PACELINE_TOKEN_FILE
names. What bounds it is a TCP connection opened there and closed, one round trip without anything of ours. The bytes go
from there to here; for the other way, change places.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from paceline.bench.bare_party import Ears, keys, open_party, way_of
from paceline.bench.hardware_limits import RawSockets
from paceline.bench.result import FLOAT_BYTES, Figure, Note, say_nothing, timed
from paceline.bench.subprocess_job import Children, ParentStream
from paceline.core.coordination import party
from paceline.live.control.link_probe import timed_looks
from paceline.live.node.published_state import FREIGHT_LENGTH

FREIGHT_BYTES = FLOAT_BYTES * FREIGHT_LENGTH
TRIES = 3
"""Of each single measurement, of which the best counts: a link is what it can be."""
LIMITS = {
    "shm": ("a byte there and back, Unix stream", "the same, and a copy in memory"),
    "tcp": ("a byte there and back, plain TCP", "a byte there, the answer back, plain TCP"),
}
Seconds = tuple[float, float]
"""Until nothing has come, and `FREIGHT_BYTES`."""


def measure(transports: Sequence[str], rounds: int, note: Note = say_nothing, *, tls: bool = False) -> Iterator[Figure]:
    """Yields two figures a transport: nothing, and a megabyte. Raises PacelineError when the other process fails.

    tls: as between hosts; for tcp only.
    """
    torch.set_num_threads(1)
    parties = (party.server(0), party.worker(0))
    for transport in transports:
        note(f"links over {transport}: starting a process")
        with keys(tls, parties) as credentials, _plain(transport) as limit, Children() as children:
            other = children.start("links.ask", {"transport": transport, "credentials": credentials})
            with _listening(transport, credentials) as address:
                other.hear()
                other.tell(address)
                other.hear()
                ours, bound = [], []
                for number in range(rounds + 1):  # the first warms up
                    note(f"links over {transport}: round {number} of {rounds}")
                    other.tell("again")
                    ours.append(tuple(other.hear()))
                    bound.append(limit())
        yield from _figures(transport, tls, ours[1:], bound[1:], rounds)


def _figures(
    transport: str, tls: bool, ours: Sequence[Seconds], bound: Sequence[Seconds], rounds: int
) -> Iterator[Figure]:
    """Yields both figures of one transport."""
    for which, (what, nbytes) in enumerate((("nothing", 0), ("a megabyte", FREIGHT_BYTES))):
        yield Figure.of(
            f"ask for {what}, {way_of(transport, tls)}",
            LIMITS[transport][which],
            nbytes,
            [seconds[which] for seconds in ours],
            [seconds[which] for seconds in bound],
            transport=transport,
            tls=tls,
            rounds=rounds,
        )


@contextlib.contextmanager
def _listening(transport: str, credentials: str) -> Iterator[str]:
    """Gives the address of a party that shows a message without numbers, and a megabyte."""
    node, way = open_party(party.server(0), transport, workers=1, servers=1, credentials=credentials)
    way.open(Ears(node))
    try:
        yield way.address
    finally:
        way.close()


def ask(job: dict[str, Any], stream: ParentStream) -> None:
    """Is the main function of the other process: it answers each line with the seconds of both questions."""
    node, way = open_party(party.worker(0), job["transport"], workers=1, servers=1, credentials=job["credentials"])
    way.open(Ears(node))
    stream.tell("here")
    way.connect(party.server(0), stream.hear())
    stream.tell("ready")
    while stream.hear():
        stream.tell(timed_looks(node, party.server(0), TRIES))


@contextlib.contextmanager
def _plain(transport: str) -> Iterator[Callable[[], Seconds]]:
    """Measures the same over plain sockets, without any code of a transport."""
    unix = transport == "shm"
    source, target = torch.ones(FREIGHT_LENGTH), torch.zeros(FREIGHT_LENGTH)
    with RawSockets(1, 1, unix=unix) as small, RawSockets(1, FREIGHT_BYTES, unix=unix) as large:

        def once() -> Seconds:
            empty = min(small.once() for _ in range(TRIES))
            if unix:
                return empty, empty + min(timed(lambda: target.copy_(source)) for _ in range(TRIES))
            return empty, min(large.once() for _ in range(TRIES))

        yield once
