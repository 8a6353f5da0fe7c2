"""Reads the model of the run, wherever the scheme keeps it: during training (`model_now`), and the last one.

model_of            during training                         the last model
servers             their slices, joined                    the same
any worker          of the first worker that answers        of worker `holder`
mean of workers     the weighted mean of those that answer  the mean, which `holder` computes for all
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from paceline.core.collective.mean_server import mean_model
from paceline.core.coordination import party
from paceline.core.effects import SERVERS
from paceline.core.errors import PeerLost
from paceline.core.scheme import ModelOf
from paceline.core.vector import is_finite
from paceline.live.control.session import Session
from paceline.live.node.published_state import FINAL, WEIGHTS
from paceline.live.state.responsive_reads import Answering

Peek = Callable[[int], tuple[Any, float]]
"""Returns the model of a worker, and its weight in the mean."""


def model_now(session: Session, answering: Answering, model_of: ModelOf, workers: int) -> Any:
    """Returns the present model, for a party that is connected to everybody. Training does not stop for it.

    Workers that do not answer are left out. Raises NoAnswer, which is a PeerLost, if none answers.
    """
    if model_of == "servers":
        return session.node.read_state(SERVERS, WEIGHTS)
    here = [rank for rank in range(workers) if rank not in session.departed] or [0]
    found = _models(answering.read_model, here)
    return next(found)[0] if model_of == "any worker" else mean_model(found)


def mean_now(session: Session, ranks: list[int]) -> Any:
    """Returns the mean of these workers' models, without those lost meanwhile. Raises PeerLost if all are."""
    return mean_model(_models(session.node.read_model, ranks))


def _models(read_model: Peek, ranks: list[int]) -> Iterator[tuple[Any, float]]:
    """Yields the models of those not lost meanwhile, one after the other. Raises PeerLost if all are lost."""
    lost: list[PeerLost] = []
    yield from peeked_models(read_model, ranks, lost)
    if lost and len(lost) == len(ranks):
        raise lost[-1]


def peeked_models(
    read_model: Peek, ranks: list[int], lost: list[PeerLost] | None = None
) -> Iterator[tuple[Any, float]]:
    """Yields the models of those of `ranks` that are not lost meanwhile; `lost` collects the errors.

    One with NaN or infinity would spoil the mean: it is left out, unless the caller, which gives `lost`, gets no other.
    """
    spoilt: tuple[Any, float] | None = None
    sound = False
    for rank in ranks:
        try:
            model = read_model(rank)
        except PeerLost as error:
            if lost is not None:
                lost.append(error)
            continue
        if is_finite(model[0]):
            sound = True
            yield model
        else:
            spoilt = spoilt or model
    if spoilt is not None and not sound and lost is not None:
        yield spoilt


def _shown_at_the_end(session: Session, holder: int) -> Any:
    """Returns the last model as worker `holder` shows it; None for one of a wrong length. Raises PeerLost."""
    shown = session.node.read_published(holder, FINAL)
    with contextlib.suppress(PeerLost):
        return session.node.model_in(holder, shown)[0]
    return None


def _without(session: Session, model_of: ModelOf, holder: int, workers: int, v: Any) -> Any:
    """Returns the last model of the others, since `holder` shows one that is of no use; `v` if no other one is better.

    Raises PeerLost where there is none at all.
    """
    others = [rank for rank in range(workers) if rank not in (holder, session.node.me.index, *session.lost_ranks)]
    for rank in others:
        with contextlib.suppress(PeerLost):
            session.reach(party.worker(rank))
    own = [session.node.role.model()] if session.node.has_loop else []
    found = itertools.chain(own, peeked_models(session.node.read_model, others))
    first = next(found, None)
    if first is None and v is None:
        raise PeerLost(f"worker {holder} shows a model of a wrong length, and nobody else has one")
    if first is None:
        return v
    return first[0] if model_of == "any worker" else mean_model(itertools.chain([first], found))


def final_model(session: Session, model_of: ModelOf, holder: int, workers: int) -> Any:
    """Returns the last model, when nobody trains any more.

    Where workers keep the model, all read it from worker `holder`. Where they differ, `holder` computes the mean for
    all, since two workers could round it differently. If `holder` shows one of a wrong length, or with NaN, it is left
    out, and each reads the models of the others.
    """
    node = session.node
    if model_of == "servers":
        return node.read_state(SERVERS, WEIGHTS)
    if node.me != party.worker(holder):
        session.reach(party.worker(holder))
        v = _shown_at_the_end(session, holder)
        return _without(session, model_of, holder, workers, v) if v is None or not is_finite(v) else v
    v, weight = node.role.model()
    if model_of == "mean of workers":
        ranks = [rank for rank in range(workers) if rank != holder and rank not in session.lost_ranks]
        v = mean_model(itertools.chain([(v, weight)], peeked_models(node.read_model, ranks)))  # one at a time in memory
    node.published[FINAL] = lambda _slice: v
    return v
