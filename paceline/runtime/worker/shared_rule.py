"""Gives a worker that joins late what the rule remembers by which every worker makes the same updates.

Where workers hold one and the same model, each applies the mean gradient by a rule of its own, and the model stays the
same while the rules do. The newcomer reads worker and rule between two rounds, which wait for it by then
(`live/state/late_join.py`).
"""

from __future__ import annotations

import functools
from typing import Any

from paceline.core.coordination import party
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE, PublishedState
from paceline.live.state.slice_state import fetch, kept, publish_state
from paceline.runtime.checkpointing.slice_capture import NOTHING, load_rule, state_of_rule

RULE = "rule"


class SharedRule:
    """The rule `update` of this worker, for a model of `length` numbers."""

    def __init__(self, node: Node, update: Any, length: int) -> None:
        self._node, self._update, self._length = node, update, length

    def show(self) -> None:
        """Shows it to those that join late."""
        self._node.published[kept(RULE, STATE)] = lambda _slice: self._node.between_messages(self._facts)

    def _facts(self) -> PublishedState:
        numbers, vectors = state_of_rule(self._update, self._length)
        for name in vectors:  # a rule has them from its first step on
            self._node.published[kept(RULE, name)] = functools.partial(self._vector, name)
        return publish_state({"numbers": numbers}, vectors, NOTHING)

    def _vector(self, name: str, _slice: int) -> PublishedState:
        read = lambda: state_of_rule(self._update, self._length)[1][name]  # noqa: E731
        return PublishedState(v=self._node.between_messages(read))

    def take(self, rank: int) -> None:
        """Takes that of worker `rank`. Raises PeerLost."""
        (state,) = fetch(self._node, party.worker(rank), [0], RULE)
        load_rule(self._update, state.facts["numbers"], {name: v.value() for name, v in state.vectors.items()})
