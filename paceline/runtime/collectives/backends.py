"""Makes what carries `Mean` on a worker; `paceline.runtime.collectives.choice` says which.

PeerMeans           a schedule over the workers' own connections (ring, pairwise, ...)
CollectiveCarrier   torch.distributed (`torch_distributed.py`)
LowRankMeans        either of them, or the servers, for the factors of PowerSGD (`powersgd.py`)
none                the servers: a Mean is then a call like any other
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from paceline.codec.pipeline.collective import MeanCoder
from paceline.core.collective import PEERS, groups, homes_of
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.effects import Mean
from paceline.core.paramserver.peer_check import OwnResults
from paceline.live.collectives.peer_backend import PeerCarrier
from paceline.live.control.link_probe import measure_link
from paceline.live.control.session import Session
from paceline.live.node.hosted_slice import Carrier
from paceline.live.protocol.pending_reply import PendingReply
from paceline.runtime.collectives.torch_distributed import CollectiveCarrier
from paceline.runtime.collectives.torch_store import RunStore
from paceline.runtime.spec.process_spec import ProcessSpec

MEETING_SECONDS = 90.0  # less than a phase of a run may take, so that those are named who do not come


class LiveCarrier(Carrier, Protocol):
    """Carries means for one incarnation of a worker."""

    def drain(self) -> None:
        """Begins no mean any more, and helps the others to complete theirs without this worker."""

    def traffic(self) -> tuple[int, int]:
        """Returns the bytes sent and received past the worker's own connections."""

    def close(self) -> None: ...


class PeerMeans:
    """Carries means over the connections between workers, by one schedule."""

    def __init__(self, peers: PeerCarrier, schedule: str, hosts: Sequence[str], others: Sequence[int]) -> None:
        self._peers, self._schedule, self._hosts, self._others = peers, schedule, hosts, others

    def begin(self, effect: Mean) -> PendingReply:
        """Begins a mean among the workers that it names; the reply completes it."""
        hosts = groups(homes_of(effect.among, self._hosts)) if self._schedule == "hierarchical" else ()
        return self._peers.begin(effect, self._schedule, hosts)

    def drain(self) -> None:
        """Lets the others average without this worker, which goes on passing their pieces on."""
        self._peers.leave(self._others)

    def traffic(self) -> tuple[int, int]:
        """Returns zeros: all bytes go over the worker's own connections, where they are counted."""
        return 0, 0

    def close(self) -> None:
        self._peers.close()


def measured_links(session: Session) -> control.Links:
    """Returns latency and seconds per byte to a worker on this host, and to one on another; zeros where there is none.

    Workers of a lower rank are measured, since this one has called them already.
    """
    me = session.node.me.index
    here = [session.host_of(party.worker(rank)) == session.host_of(session.node.me) for rank in range(me)]
    found = []
    for on_this_host in (True, False):
        peer = next((rank for rank in reversed(range(me)) if here[rank] == on_this_host), None)
        found.append((0.0, 0.0) if peer is None else measure_link(session.node, party.worker(peer)))
    return *found[0], *found[1]


def make_carrier(
    spec: ProcessSpec,
    session: Session,
    plan: control.Plan,
    coder: MeanCoder | None,
    check: OwnResults | None = None,
) -> LiveCarrier | None:
    """Returns the carrier of the plan; None where the servers carry means. Raises ConfigError, naming the way out.

    `coder`: of the codec of this run, if any; `check`: of this worker's parts. The node's `peers` have their own.
    """
    name, peers = plan.allreduce, session.node.peers
    if name == "servers" or (peers is None and name in PEERS):
        return None
    rank = spec.who.index
    if name in PEERS:
        assert peers is not None
        return PeerMeans(peers, name, plan.hosts, [other for other in range(plan.workers) if other != rank])
    return CollectiveCarrier(
        name,
        rank,
        spec.workers,
        store=RunStore(session.node, spec.timeout_s if name == "nccl" else min(spec.timeout_s, MEETING_SECONDS)),
        bind=spec.bind,
        device=torch.device(spec.device),
        timeout_s=spec.timeout_s,
        coder=coder,
        check=check,
    )
