"""Describes what a process has to know to take part in a run: who it is, and the run's configuration.

`make_specs` makes the specifications of a whole run.

A setting is declared once, in its section of `paceline.config`. It reaches every process in `ProcessSpec.config`
(scripts of the user's own: with `variable=True`), and nothing has to be added here or to the messages of launchers.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline import config as configuration
from paceline.checkpoint.redis_url import NO_SECRETS, StoreSecrets
from paceline.config import Config
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import HubTransport
from paceline.live.net.message_log import with_logging
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Transport
from paceline.live.recording.party_decisions import PartyDecisionRecorder
from paceline.live.recording.party_recorder import with_recording
from paceline.live.same_host.shared_memory import segments_for
from paceline.live.security.tls import Tls


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """Describes one process: its identity, and the configuration of its run.

    Fields that have a setting of the same name hold the value of that setting for this one process.

        party          its name, such as `worker 3`
        coordinator    address of the coordinator, host:port
        token          the secret by which processes of the run know each other
        folder         a folder of this run on the process's host, which only the run's processes may read
        slot           number among the workers of its host, to find its GPU where none is named; -1: all are on one
        neighbours     ranks of the workers of its host, in the order of their slots; empty: all are on one
        step_seconds   emulation: a step lasts at least that long; 0 for as fast as it goes
        batch_limit    samples of the largest batch of this worker; 0 for any
        part_size      samples that its memory holds at once, as an earlier incarnation has found; 0: whole batches
        bind           the address to listen on
        credentials    the folder with this party's key, if connections are under TLS
        store_secrets  what is needed to write to --store
        resume         the checkpoint to go on from, a folder; empty for a new start
        judges         an evaluator evaluates the last model; where this is False it only saves it
        incarnation    how often the process was restarted
        config         the configuration of the run; of a script's, only what its environment says (`Flag.variable`)
    """

    party: str
    workers: int
    servers: int
    coordinator: str
    token: str
    folder: str = ""
    device: str = "cpu"
    slot: int = -1
    neighbours: tuple[int, ...] = ()
    step_seconds: float = 0.0
    batch_limit: int = 0
    part_size: int = 0
    bind: str = "127.0.0.1"
    credentials: str = ""
    store_secrets: StoreSecrets = NO_SECRETS
    resume: str = ""
    judges: bool = True
    incarnation: int = 0
    config: Config = field(default_factory=Config)

    @property
    def who(self) -> Party:
        """Returns the party as a value: its kind and number."""
        return Party.parse(self.party)

    @property
    def gpu(self) -> int:
        """Returns the number of the GPU on its host that is this worker's, where none is named."""
        return self.who.index if self.slot < 0 else self.slot

    def overlapping(self, wanted: bool) -> ProcessSpec:
        """Returns this specification for a loop that asks for overlap or does not."""
        cluster = dataclasses.replace(self.config.cluster, overlap="on" if wanted else "off")
        return dataclasses.replace(self, config=dataclasses.replace(self.config, cluster=cluster))

    def to_json(self) -> str:
        """Returns the spec as JSON, for a launcher's message. It holds the run's token and other secrets."""
        identity = {key: getattr(self, key) for key in _IDENTITY}
        values = {**msgspec.to_builtins(identity), "config": configuration.to_dict(self.config)}
        return json.dumps(values)  # which also writes names of files that are no UTF-8

    @classmethod
    def from_json(cls, text: str) -> ProcessSpec:
        """Returns the spec of a text by `to_json`. Raises ConfigError for a configuration of another version of
        Paceline."""
        values = json.loads(text)
        config = configuration.build(values.pop("config"))
        return dataclasses.replace(msgspec.convert(values, cls), config=config)

    # ---- settings by their short names -------------------------------------------------------------------
    @property
    def steps(self) -> int:
        """Returns how many steps of its own a worker makes before it leaves; 0 for any number."""
        return self.config.stop.steps

    @property
    def allreduce(self) -> str:
        """Returns who carries means; see `--allreduce`."""
        return self.config.cluster.allreduce

    @property
    def overlap(self) -> str:
        """Returns auto, on or off; see `--overlap`."""
        return self.config.cluster.overlap

    @property
    def buffers(self) -> str:
        """Returns what becomes of running statistics; see `--buffers`."""
        return self.config.model.buffers

    @property
    def timeout_s(self) -> float:
        """Returns the seconds that each wait for another party may take."""
        return self.config.cluster.timeout

    def open_transport(self) -> TcpTransport:
        """Returns the transport of this process, which listens on `bind`. Raises ConfigError if memory cannot be shared
        as asked."""
        from paceline.engine.vectors.buffer_pool import (
            take_memory_from,  # torch: not for the supervisor, who hands places out
        )
        from paceline.engine.vectors.flat import FlatMemory

        segments, memory = segments_for(self.config.cluster.transport), FlatMemory(self.device)
        if segments is not None:
            segments.prepare = functools.partial(memory.mapped, writable=True)
            # Before the first vector is allocated: only buffers that lie in a shared segment can be read by others
            # without a copy.
            take_memory_from(segments.make)
        return TcpTransport(
            self.who,
            self.token,
            memory,
            host=self.bind,
            tls=Tls(self.credentials, self.who) if self.credentials else None,
            streams=self.config.cluster.streams,
            segments=segments,
            shared_only=self.config.cluster.transport == "shm",
            incarnation=self.incarnation,
        )

    def session(self, transport: Transport) -> Session:
        """Returns the process's part in the control plane, over `transport`, with its Node."""
        from paceline.engine.vectors.chunked import RopeMemory
        from paceline.runtime.spec.row_packer import RowPacker
        from paceline.runtime.spec.usage import Usage

        packer = None if isinstance(transport, HubTransport) else RowPacker()  # in one process nothing is sent
        transport = with_logging(transport, self.config.run.verbose)
        run, observer = self.config.run, None
        if run.record and packer is not None:
            transport = with_recording(transport, Path(run.out), self.incarnation, run.record_bytes)
            observer = PartyDecisionRecorder(Path(run.out), self.who, self.incarnation, run.record_bytes)
        node = Node(transport, RopeMemory(self.device), timeout_s=self.timeout_s, packer=packer)
        session = Session(transport, node, observer=observer)
        session.reports.stretch(self.config.cluster.workers, self.config.cluster.dead_after)
        if packer is not None:  # several parties of one process cannot be told apart
            session.reports.usage = Usage(self.who, self.device, transport, session.node.now)
        return session


_IDENTITY = tuple(f.name for f in dataclasses.fields(ProcessSpec) if f.name != "config")


def make_specs(
    config: Config,
    coordinator: str,
    token: str,
    folder: str,
    *,
    credentials: str,
    resume: str,
    evaluator: bool,
    store_secrets: StoreSecrets,
) -> dict[Party, ProcessSpec]:
    """Returns the spec of each party, in the order in which they are started; also of workers that may join later.

    Servers come first, since workers connect to them. `coordinator`: its address. `credentials`: the folder of the
    keys, or "". `resume`: the checkpoint to go on from. `evaluator`: whether the run has one. The store's secrets go
    to the evaluator alone, which writes checkpoints.
    """
    cluster = config.cluster
    if cluster.beginning < cluster.workers:  # others come later, and only servers can have been there all along
        config = dataclasses.replace(config, cluster=dataclasses.replace(cluster, allreduce="servers"))

    def spec(who: Party, rank: int | None = None) -> ProcessSpec:
        """Returns the specification of one party; `rank` is that of a worker."""
        return ProcessSpec(
            party=str(who),
            workers=cluster.workers,
            servers=cluster.servers,
            coordinator=coordinator,
            token=token,
            folder=folder,
            device="cpu" if rank is None else config.device_of(rank),
            step_seconds=0.0 if rank is None else cluster.step_ms / 1000 * config.slowdown_of(rank),
            batch_limit=0 if rank is None else config.batch_limit_of(rank),
            bind=cluster.bind,
            credentials=credentials,
            resume=resume,
            config=config,
        )

    specs = [spec(party.server(shard)) for shard in range(cluster.servers)]
    specs += [spec(party.worker(rank), rank) for rank in range(cluster.workers)]
    if evaluator:
        specs.append(dataclasses.replace(spec(party.EVALUATOR), store_secrets=store_secrets))
    return {spec.who: spec for spec in specs}
