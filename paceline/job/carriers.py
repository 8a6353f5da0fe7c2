"""Who carries `Mean` in a run: servers, torch.distributed, or the workers themselves; chosen when the run begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from paceline.codec.means import MeanCoder
from paceline.core.collective import PEERS, Choice, Fabric, Link, choose, groups, homes_of
from paceline.core.effects import Mean
from paceline.core.scheme import Scheme
from paceline.job.collectives import CollectiveCarrier, own_gpus
from paceline.job.recipe import Recipe
from paceline.job.seat import Seat
from paceline.live import control, party
from paceline.live.hosted import Carrier
from paceline.live.links import measure_link
from paceline.live.peers import PeerCarrier
from paceline.live.pending import Pending
from paceline.live.session import Session

UNKNOWN = (0.0, 0.0, 0.0, 0.0)  # links inside a host and across
MESHES_MAX = 32  # workers: beyond it, nobody is connected to everybody unasked


class LiveCarrier(Carrier, Protocol):
    """A carrier of means, as the life of a worker needs it."""

    def drain(self) -> None:
        """This worker begins no mean any more; the others go on without being held up."""

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received past the worker's own connections."""

    def close(self) -> None: ...


class PeerMeans:
    """Means over the connections between workers, by one schedule."""

    def __init__(self, peers: PeerCarrier, schedule: str, hosts: Sequence[str], others: Sequence[int]) -> None:
        self._peers, self._schedule, self._hosts, self._others = peers, schedule, hosts, others

    def begin(self, effect: Mean) -> Pending:
        hosts = groups(homes_of(effect.among, self._hosts)) if self._schedule == "hierarchical" else ()
        return self._peers.begin(effect, self._schedule, hosts)

    def drain(self) -> None:
        """Those who go on average without this worker, which goes on to pass their pieces on."""
        self._peers.leave(self._others)

    def traffic(self) -> tuple[int, int]:
        """None of its own: all goes over the worker's connections."""
        return 0, 0

    def close(self) -> None:
        self._peers.close()


def meets_for_means(mean: str, scheme: Scheme, servers: int, workers: int) -> bool:
    """Do the workers connect to one another so that they can carry means?"""
    if servers and not scheme.uses_mean(servers):
        return False
    return (
        mean in PEERS or (mean == "auto" and (workers <= MESHES_MAX or not servers)) or (workers == 1 and not servers)
    )


def measured_links(session: Session) -> control.Links:
    """From this worker to one of lower rank on its host, and to one on another: all of those it has called already."""
    me = session.node.me.index
    here = [session.host_of(party.worker(rank)) == session.host_of(session.node.me) for rank in range(me)]
    found = []
    for on_this_host in (True, False):
        peer = next((rank for rank in reversed(range(me)) if here[rank] == on_this_host), None)
        found.append((0.0, 0.0) if peer is None else measure_link(session.node, party.worker(peer)))
    return *found[0], *found[1]


def choose_mean(ready: Sequence[control.Ready], workers: Sequence[control.Hello], servers: int, *, mean: str) -> Choice:
    """Who carries the means of a run where `mean` is asked for, and why; no reason where there are no means."""
    recipe = Recipe.from_json(ready[0].optimizer)
    scheme = recipe.make_scheme()
    if recipe.codecs.in_messages and servers and mean == "auto":
        return Choice("servers", "means by servers: codecs encode what passes through them")
    if servers and not scheme.uses_mean(servers):
        return Choice("servers", "")
    if not meets_for_means("auto", scheme, servers, len(workers)):
        return Choice("servers" if mean == "auto" else mean, "")
    chosen = _by_cost(ready, workers, servers) if mean == "auto" else Choice(mean, f"{mean}, as --mean says")
    if len(workers) == 1 and not servers:
        return Choice("ring", "")
    return Choice(chosen.name, f"means by {chosen.reason}" if scheme.uses_mean(servers) else "")


def _by_cost(ready: Sequence[control.Ready], workers: Sequence[control.Hello], servers: int) -> Choice:
    if not servers and own_gpus([hello.device for hello in workers]):
        return Choice("nccl", "nccl: every worker has a GPU of its own")
    if len(workers) == 1:
        return Choice("servers", "servers: there is one worker")
    measured = [answer.peers for answer in ready if len(answer.peers) == len(UNKNOWN)] or [UNKNOWN]
    within, across = ([links[k : k + 2] for links in measured] for k in (0, 2))
    homes = homes_of(range(len(workers)), [hello.host for hello in workers])
    fabric = Fabric(homes, _slowest(within), _slowest(across), servers)
    codecs = Recipe.from_json(ready[0].optimizer).codecs
    return choose(fabric, codecs.bytes_of_mean(ready[0].length), gathered=codecs.gathers)


def _slowest(links: Sequence[tuple[float, ...]]) -> Link:
    return Link(*(max(figures) for figures in zip(*links, strict=True)))


def make_carrier(
    seat: Seat, plan: control.Plan, peers: PeerCarrier | None, coder: MeanCoder | None
) -> LiveCarrier | None:
    """None where the servers carry means. Raises ConfigError for one that cannot be had, naming the way out.

    `coder`: of the codec of this run, if any; `peers` have one of their own.
    """
    name = plan.mean
    if name == "servers" or (peers is None and name in PEERS):
        return None
    rank = seat.who.index
    if name in PEERS:
        assert peers is not None
        return PeerMeans(peers, name, plan.hosts, [other for other in range(plan.workers) if other != rank])
    return CollectiveCarrier(
        name,
        rank,
        seat.workers,
        rendezvous=seat.rendezvous,
        device=torch.device(seat.device),
        timeout_s=seat.timeout_s,
        coder=coder,
    )
