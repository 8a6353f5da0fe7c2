"""How a worker joins or rejoins during training: which state it takes over, and from whom.

    1   read the join state (clocks, rounds, ...) of every worker that has a role
    2   choose the worker to take over from (`paceline.core.parties.takeover`)
    3   read the model: from the servers, from that worker, or the mean of the workers
    4   if the model is that worker's own, read its join state again: it must not have changed meanwhile
    5   load the join state into a fresh role

A worker that is lost on the way, or has moved on in step 4, makes it start again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.core.coordination import party
from paceline.core.effects import SERVERS
from paceline.core.errors import PeerLost
from paceline.core.parties.takeover import taken_over
from paceline.core.role import Role
from paceline.core.scheme import ModelOf
from paceline.live.control.session import Session
from paceline.live.node.join_snapshot import published_by
from paceline.live.node.published_state import COMMON, WEIGHTS
from paceline.live.state.current_model import mean_now

Shown = dict[str, Any]


def others(session: Session, workers: int) -> list[int]:
    """Returns those that take part, this one apart."""
    return [rank for rank in range(workers) if rank != session.node.me.index and rank not in session.departed]


def come_late(
    session: Session,
    model_of: ModelOf,
    workers: int,
    role_with: Callable[[Any], Role],
    take: Callable[[int], None] = lambda rank: None,
) -> Role:
    """Returns a fresh role with the present model and the join state of another worker.

    `take(rank)` takes what else is of the same moment as a model that is that worker's own. All others have
    acknowledged this worker by now, so their rounds already wait for it. Raises PeerLost if no other worker is left and
    the servers do not keep the state.
    """
    while True:
        found = _seen(session, workers)
        if not found:
            return _from_servers(session, model_of, role_with)
        rank = taken_over(found, model_of)
        shown = dict(found)[rank]
        try:
            if model_of == "mean of workers":
                w = mean_now(session, [other for other, _ in found])
            else:
                w = session.node.read_state(rank if model_of == "any worker" else SERVERS, WEIGHTS)
            role = role_with(w)
            if model_of == "any worker":
                take(rank)
            if model_of == "any worker" and Role.progress_key(shown) != Role.progress_key(_shown(session, rank) or {}):
                continue  # it has gone on meanwhile
            role.load_join_state(shown)
            role.join_late()
            return role
        except PeerLost:
            continue  # it is lost itself


def _from_servers(session: Session, model_of: ModelOf, role_with: Callable[[Any], Role]) -> Role:
    """Returns a role made from the servers alone, when all workers that trained are lost. Raises PeerLost."""
    if model_of == "servers":
        role = role_with(session.node.read_state(SERVERS, WEIGHTS))
        if role.servers_count:
            return role
    raise PeerLost("no worker is left from which this one could take over its state")


def _seen(session: Session, workers: int) -> list[tuple[int, Shown]]:
    """Returns the join state of each worker that has a role; other newcomers have none yet, and are not waited for."""
    found: list[tuple[int, Shown]] = []
    for rank in others(session, workers):
        try:
            session.reach(party.worker(rank))
            shown = _shown(session, rank)
        except PeerLost:
            continue
        if shown is not None:
            found.append((rank, shown))
    return found


def _shown(session: Session, rank: int) -> Shown | None:
    """Returns what the role of another worker has shown, or None where it has no role yet."""
    return published_by(session.node.read_published(rank, COMMON))
