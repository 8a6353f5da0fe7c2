"""Where a process stands in its run, and how it gets there."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import msgspec

from paceline.checkpoint.redis_url import NO_SECRETS, StoreSecrets
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import HubTransport
from paceline.live.net.message_log import with_logging
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.party import Party
from paceline.live.protocol.transport import Transport
from paceline.live.same_host.shared_memory import segments_for
from paceline.live.security.tls import Tls


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What a process has to know to take part.

    overlap: communicate while computing: on, off, or auto, where it can gain.
    step_seconds: emulation: a step lasts at least that long; 0 for as fast as it goes.
    steps: leave after so many steps of one's own; 0 for never.
    folder: of this run's own on its host, for what only its processes may read.
    verbose: what it tells of, as --verbose.
    store_secrets: of --store, for who writes there.
    judges: whether an evaluator judges the last model, or only saves it.
    resume: folder of the checkpoint to go on from; empty for the beginning. incarnation: its number, from 0.
    transport: how vectors pass between processes of one host: auto, shm or tcp.
    slot: number among the workers of its host, by which a GPU is found where none is named; -1 where all are on one.
    bind: address to listen on. credentials: folder with this party's key, if connections are under TLS.
    """

    party: str
    workers: int
    servers: int
    coordinator: str
    token: str
    folder: str = ""
    device: str = "cpu"
    slot: int = -1
    step_seconds: float = 0.0
    steps: int = 0
    transport: str = "auto"
    bind: str = "127.0.0.1"
    credentials: str = ""
    allreduce: str = "auto"
    overlap: str = "auto"
    buffers: str = "average"
    streams: int = 0
    timeout_s: float = 600.0
    store_secrets: StoreSecrets = NO_SECRETS
    resume: str = ""
    judges: bool = True
    incarnation: int = 0
    verbose: int = 0

    @property
    def who(self) -> Party:
        return Party.parse(self.party)

    @property
    def gpu(self) -> int:
        """Which one of its host is this worker's, where none is named."""
        return self.who.index if self.slot < 0 else self.slot

    def overlapping(self, wanted: bool) -> ProcessSpec:
        """This one, for a loop that asks for overlap or does not."""
        return dataclasses.replace(self, overlap="on" if wanted else "off")

    def to_json(self) -> str:
        return json.dumps(msgspec.to_builtins(self))  # which also writes names of files that are no UTF-8

    @classmethod
    def from_json(cls, text: str) -> ProcessSpec:
        return msgspec.convert(json.loads(text), cls)

    def open_transport(self) -> TcpTransport:
        """Raises ConfigError where memory cannot be shared and shall be."""
        from paceline.engine.vectors.buffer_pool import (
            take_memory_from,  # torch: not for the supervisor, who hands places out
        )
        from paceline.engine.vectors.flat import FlatMemory

        segments = segments_for(self.transport)
        if segments is not None:
            take_memory_from(segments.make)
        return TcpTransport(
            self.who,
            self.token,
            FlatMemory(self.device),
            host=self.bind,
            tls=Tls(self.credentials, self.who) if self.credentials else None,
            streams=self.streams,
            segments=segments,
            shared_only=self.transport == "shm",
            incarnation=self.incarnation,
        )

    def session(self, transport: Transport) -> Session:
        from paceline.engine.vectors.chunked import RopeMemory
        from paceline.runtime.spec.row_packing import RowPacker

        packer = None if isinstance(transport, HubTransport) else RowPacker()  # in one process nothing is sent
        transport = with_logging(transport, self.verbose)
        return Session(transport, Node(transport, RopeMemory(self.device), timeout_s=self.timeout_s, packer=packer))
