"""A party without a run around it: a node, its transport, and whoever it has been told to reach."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from paceline.config import Config
from paceline.config.sections import ClusterSettings
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.engine.vectors.chunked import RopeMemory
from paceline.live.adaptive_spin import share_host
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from paceline.live.same_host.shared_memory import Segments
from paceline.live.security.certificate_authority import CertificateAuthority
from paceline.runtime.spec.process_spec import ProcessSpec

TRANSPORTS = ("shm", "tcp")
"""Ways between processes that can be measured: shared memory of this host, and TCP."""
TOKEN = "the token of this measurement"
"""Any text does: the processes of a measurement are children of this one, and end with it."""
TIMEOUT_S = 60.0
"""Seconds that a call of a node waits for its answer."""


class Ears:
    """Passes on to a node what its transport reports; an error ends the process.

    In a run a session stands here, which also checks who may send what. A measurement has no coordinator and trusts its
    own children, so it leaves that out; the check is in `paceline bench overhead`, which makes a whole run.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.deliver: Callable[[Party, Envelope], None] = node.deliver

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        """Tells the node that the connection to `src` is gone; open calls to it fail."""
        self._node.lost(src, why)

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        """Returns the vectors that a message is received into, of the node's memory."""
        return list(self._node.room_for(src, kind, id, lengths, shared))

    def failed(self, error: BaseException) -> None:
        """Prints the error and ends the process at once: the parent notices the closed pipe."""
        print(f"failed: {error!r}", file=sys.stderr)
        os._exit(1)


@contextlib.contextmanager
def keys(tls: bool, parties: Iterable[Party]) -> Iterator[str]:
    """Gives a folder with credentials of these parties, made as a run makes them; "" without `tls`.

    The folder is removed at the end of the context.
    """
    if not tls:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "credentials"
        CertificateAuthority().write(path, parties)
        yield str(path)


def open_party(
    who: Party, transport: str, *, workers: int, servers: int, credentials: str = "", device: str = "cpu"
) -> tuple[Node, TcpTransport]:
    """Returns a node and its transport, as a party of a run has them, with one thread for arithmetic.

    Messages are delivered once the caller has opened the transport with `Ears(node)`.

    credentials: the folder that `keys` made; connections are under TLS then. device: where its vectors live.
    """
    import paceline.schemes  # noqa: F401  enters the catalogue

    torch.set_num_threads(1)
    spec = ProcessSpec(
        party=str(who),
        workers=workers,
        servers=servers,
        coordinator="",
        token=TOKEN,
        credentials=credentials,
        device=device,
        config=Config(cluster=ClusterSettings(transport=transport)),
    )
    way = spec.open_transport()
    share_host(workers + servers)
    node = Node(way, RopeMemory(device), timeout_s=TIMEOUT_S)
    return node, way


def way_of(transport: str, tls: bool) -> str:
    """Returns the name of a way between two parties, as tables show it."""
    return f"{transport} under TLS" if tls else transport


def there_or_refused(transports: Sequence[str]) -> None:
    """Raises ConfigError where one of them cannot be had on this machine."""
    if "shm" in transports and not Segments.available():
        raise ConfigError("--transport shm: memory can be shared on Linux only; give --transport tcp")
