"""Lets workers that have loaded states of unlike moments (`join(state=...)`) begin at one, that of worker 0.

    worker 0 publishes     moment/state: the samples of all, which they are as far as servers know, its own
    another one reads it   before training, and takes these counts in place of its own

Servers begin with worker 0's state. What another worker had trained after worker 0 saved is in no model then: it does
not count, and is dealt again. Workers that hold the model and meet in rounds have states of one round
(`Recipe.moment`), so each keeps its own place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from paceline.core.coordination import party
from paceline.live.control.session import Session
from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import fetch, kept, publish_state
from paceline.runtime.checkpointing.slice_capture import NOTHING
from paceline.runtime.worker.loop.progress import ResumedProgress

MOMENT = "moment"
"""Under this name worker 0 publishes of which moment its state is."""


def show_moment(session: Session, behind: ResumedProgress) -> None:
    """Publishes of which moment a loaded state is, as worker 0."""
    facts = moment_of(behind)
    session.node.published[kept(MOMENT, STATE)] = lambda _slice: publish_state(facts, (), NOTHING)


def begin_beside(session: Session, workers: int, behind: ResumedProgress) -> ResumedProgress:
    """Returns where another worker begins beside worker 0. Raises PeerLost or TimedOut."""
    session.reach(party.worker(0))
    (state,) = fetch(session.node, party.worker(0), [0], MOMENT)
    return agreed(state.facts, workers, behind)


def moment_of(behind: ResumedProgress) -> dict[str, Any]:
    """Returns the moment of a loaded state, as values that JSON can hold."""
    assert behind.memories is not None
    entry = behind.memories.entry
    return {"samples": behind.samples, "done": behind.done, "steps": entry.steps, "position": entry.position}


def agreed(first: Mapping[str, Any], workers: int, behind: ResumedProgress) -> ResumedProgress:
    """Returns where another worker begins beside a worker 0 whose state is of the moment `first`: of a moment of its
    own, with an even part of what worker 0 had not trained itself."""
    assert behind.memories is not None
    memories, samples = behind.memories, int(first["samples"])
    done = tuple((epoch, start, stop) for epoch, start, stop in first["done"])
    if memories.common is None and (samples, done) != (behind.samples, behind.done):
        position, steps = int(first["position"]), int(first["steps"])
        mine = (samples - position) // (workers - 1)
        entry = dataclasses.replace(
            memories.entry, position=mine, steps=round(steps * mine / position) if position else 0
        )
        memories = dataclasses.replace(memories, entry=entry)
    return dataclasses.replace(behind, samples=samples, done=done, memories=memories)
