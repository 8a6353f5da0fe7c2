"""Reads the model of all workers, as one of them sees it while training goes on."""

from __future__ import annotations

import itertools
from typing import Any

from paceline.core.collective.mean_server import mean_model
from paceline.core.coordination import party
from paceline.core.errors import PeerLost
from paceline.live.state.current_model import model_now, peeked_models
from paceline.live.state.responsive_reads import Answering
from paceline.runtime.worker.loop.joined_run import JoinedRun


def shared_weights(run: JoinedRun) -> Any:
    """Returns the weights that an evaluator would evaluate now. Raises PeerLost or TimedOut where they cannot be had.

    Servers have them. Where workers keep the model, they are this worker's as of its last exchange, or the mean of
    the models of all workers that answer.
    """
    session, node = run.session, run.node
    model_of = run.recipe.make_scheme().model_of(run.spec.servers)
    if model_of == "servers":
        return model_now(session, Answering(node), model_of, run.plan.workers)
    own = node.between_messages(lambda: node.role.model())
    if model_of == "any worker":
        return own[0]
    others = [rank for rank in range(run.plan.workers) if rank != run.rank and rank not in session.departed]
    reached = [rank for rank in others if _reach(run, rank)]
    return mean_model(itertools.chain([own], peeked_models(Answering(node).read_model, reached)))


def _reach(run: JoinedRun, rank: int) -> bool:
    """Connects to a worker; returns False if it is lost."""
    try:
        run.session.reach(party.worker(rank))
    except PeerLost:
        return False
    return True
