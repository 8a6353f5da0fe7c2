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
from paceline.core.errors import ConfigError
from paceline.engine.vectors.flat import FlatMemory
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.party import Party
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from paceline.live.same_host.shared_memory import Segments
from paceline.live.security.certificate_authority import CertificateAuthority
from paceline.runtime.spec.process_spec import ProcessSpec

TRANSPORTS = ("shm", "tcp")
TOKEN = "the token of this measurement"
TIMEOUT_S = 60.0


class Ears:
    """Passes what a transport tells on to a node; an error ends the process."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.deliver: Callable[[Party, Envelope], None] = node.deliver

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        self._node.lost(src, why)

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        return list(self._node.room_for(src, kind, id, lengths, shared))

    def failed(self, error: BaseException) -> None:
        print(f"failed: {error!r}", file=sys.stderr)
        os._exit(1)


@contextlib.contextmanager
def keys(tls: bool, parties: Iterable[Party]) -> Iterator[str]:
    """A folder with the credentials of these, as a run makes them for itself, for as long; without `tls` no name."""
    if not tls:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "credentials"
        CertificateAuthority().write(path, parties)
        yield str(path)


def open_party(
    who: Party, transport: str, *, workers: int, servers: int, credentials: str = ""
) -> tuple[Node, TcpTransport]:
    """A node as a party of a run has it, with one thread for arithmetic; delivers after `way.open(Ears(node))`.

    credentials: the folder of `keys`; its connections are under TLS then.
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
        config=Config(cluster=ClusterSettings(transport=transport)),
    )
    way = spec.open_transport()
    node = Node(way, FlatMemory(), timeout_s=TIMEOUT_S)
    return node, way


def way_of(transport: str, tls: bool) -> str:
    """As it is shown."""
    return f"{transport} under TLS" if tls else transport


def there_or_refused(transports: Sequence[str]) -> None:
    """Raises ConfigError where one of them cannot be had on this machine."""
    if "shm" in transports and not Segments.available():
        raise ConfigError("--transport shm: memory can be shared on Linux only; give --transport tcp")
