"""The model of the run, wherever the scheme keeps it: while training goes on, and the one it ends with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from paceline.core.collective.mean_server import mean_model
from paceline.core.effects import SERVERS
from paceline.core.errors import PeerLost
from paceline.core.scheme import ModelOf
from paceline.live import party
from paceline.live.control.session import Session
from paceline.live.node.published_state import FINAL, WEIGHTS
from paceline.live.state.responsive_reads import Answering

Peek = Callable[[int], tuple[Any, float]]
"""The model of a worker, and what it counts."""


def model_now(session: Session, answering: Answering, model_of: ModelOf, workers: int) -> Any:
    """As those who still train have it; for a party that is connected to everybody. Nobody stops for it.

    Of workers that do not answer now, nobody's is in it. Raises NoAnswer, which is a PeerLost, where none does.
    """
    if model_of == "servers":
        return session.node.read_state(SERVERS, WEIGHTS)
    here = [rank for rank in range(workers) if rank not in session.departed] or [0]
    found = _models(answering.read_model, here)
    return next(found)[0] if model_of == "any worker" else mean_model(found)


def mean_now(session: Session, ranks: list[int]) -> Any:
    """Of the models of these workers, without those that are lost meanwhile. Raises PeerLost when all are."""
    return mean_model(_models(session.node.read_model, ranks))


def _models(read_model: Peek, ranks: list[int]) -> Iterator[tuple[Any, float]]:
    """One after the other, of those that are not lost meanwhile. Raises PeerLost when all are."""
    lost: list[PeerLost] = []
    yield from peeked_models(read_model, ranks, lost)
    if lost and len(lost) == len(ranks):
        raise lost[-1]


def peeked_models(
    read_model: Peek, ranks: list[int], lost: list[PeerLost] | None = None
) -> Iterator[tuple[Any, float]]:
    """Of those of these workers that are not lost meanwhile, whoever is; `lost` takes up why."""
    for rank in ranks:
        try:
            model = read_model(rank)
        except PeerLost as error:
            if lost is not None:
                lost.append(error)
        else:
            yield model


def final_model(session: Session, model_of: ModelOf, holder: int, workers: int) -> Any:
    """Once nobody trains any more. Workers that keep the model, and the evaluator, have it from worker `holder`.

    Where workers differ it takes the mean for everybody, lest two of them round it differently.
    """
    node = session.node
    if model_of == "servers":
        return node.read_state(SERVERS, WEIGHTS)
    if node.me != party.worker(holder):
        session.reach(party.worker(holder))
        return node.read_state(holder, FINAL)
    v, weight = node.role.model()
    if model_of == "mean of workers":
        ranks = [rank for rank in range(workers) if rank != holder and rank not in session.lost_ranks]
        v = mean_model(itertools.chain([(v, weight)], peeked_models(node.read_model, ranks)))  # one at a time in memory
    node.published[FINAL] = lambda _slice: v
    return v
