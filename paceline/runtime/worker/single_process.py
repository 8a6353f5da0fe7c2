"""Runs a worker that is alone: the other parties of its run are threads of its own process.

A script that calls `paceline.join` without a launcher gets this, so that it runs unchanged on one machine.
"""

from __future__ import annotations

import functools
import threading

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.lifecycle import RunRules, RunSize
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, PacelineError, PeerLost
from paceline.core.scheme import Scheme
from paceline.core.trace import Record
from paceline.engine.vectors.chunked import RopeMemory
from paceline.live.control.session import Session
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.planning import RunChoices
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Transport
from paceline.runtime.collectives.choice import choose_allreduce
from paceline.runtime.server.server import serve
from paceline.runtime.spec.job_spec import coordinator_role
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.spec.shard_layout import lay_out


class _Quiet:
    """Shows nothing: the training loop is the user's, and so is what it prints. It closes the transport when all is
    over."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def joined(self, who: Party, hello: control.Hello) -> None: ...
    def started(self, plan: control.Plan) -> None: ...
    def progressed(self, rank: int, progress: control.Progress) -> None: ...
    def recorded(self, record: Record) -> None: ...

    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None:
        """Closes the transport, which ends every wait of the loop."""
        self._transport.close()

    def unheard(self, who: Party, incarnation: int, why: str) -> None: ...

    def finished(self, reason: str, seconds: float) -> None:
        """Closes the transport at the end of the run."""
        self._transport.close()


def _serve(spec: ProcessSpec, session: Session, workers: list[Session]) -> None:
    """Serves on a thread of its own, until the run is over. What ends it early is raised in the loops of `workers`."""
    try:
        serve(spec, session)
    except PeerLost:
        pass  # the worker has left in the middle, and knows why
    except PacelineError as error:
        for worker in workers:
            worker.handlers.failed(error)
    finally:
        session.close()


def servers_needed(scheme: Scheme) -> int:
    """Returns how many servers a worker needs that is alone: 1 if its scheme cannot do without."""
    try:
        scheme.check(1, 0)
    except ConfigError:
        return 1
    return 0


def sit_alone(
    scheme: Scheme, *, device: str, step_seconds: float = 0.0, servers: int = 0
) -> tuple[ProcessSpec, Session]:
    """Returns the spec and session of the only worker, with `servers` of its own, or one where the scheme needs one."""
    servers = servers or servers_needed(scheme)
    return sit_together(1, servers, device=device, step_seconds=step_seconds)[0]


def sit_together(
    workers: int, servers: int, *, device: str = "cpu", step_seconds: float = 0.0
) -> list[tuple[ProcessSpec, Session]]:
    """Returns specs and sessions of workers that are threads of this process; their servers run already."""
    hub = Hub()
    transport = hub.transport(party.COORDINATOR)
    coordinator = Coordinator(
        transport,
        Node(transport, RopeMemory()),
        _Quiet(transport),
        RunSize(workers, servers),
        RunChoices(coordinator_role, lay_out, functools.partial(choose_allreduce, wanted="auto")),
        RunRules(),
    )
    address = coordinator.open()

    def sit(who: Party, device: str) -> tuple[ProcessSpec, Session]:
        """Joins the run as one more party of this process."""
        spec = ProcessSpec(
            party=str(who),
            workers=workers,
            servers=servers,
            coordinator=address,
            token="",
            device=device,
            step_seconds=step_seconds,
        )
        session = spec.session(hub.transport(who))
        session.hello(address, device)
        return spec, session

    sessions: list[Session] = []
    for shard in range(servers):
        served = (*sit(party.server(shard), "cpu"), sessions)
        threading.Thread(target=_serve, args=served, name=str(party.server(shard)), daemon=True).start()
    taking_part = [sit(party.worker(rank), device) for rank in range(workers)]
    sessions.extend(session for _, session in taking_part)
    return taking_part
