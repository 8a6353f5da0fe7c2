"""Copies of a server's slices on the next one (`--ack replica`), by the rules of `core/fault_tolerance/replication.py`.

Between processes of one host the weights are copied by reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from paceline.core.coordination import party
from paceline.core.fault_tolerance import replication
from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.role import RoleContext
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE, PublishedState
from paceline.live.state.slice_state import kept, publish_state

COPY = "copy"  # what the published states of copies are called after
COMPLETE = kept(COPY, "complete")


class SliceReplication(replication.Copies):
    """Keeps copies of the previous server's slices, and publishes them to the process that replaces it."""

    def __init__(
        self,
        node: Node,
        place: RoleContext,
        *,
        before: int,
        after: int,
        counts: Sequence[int],
        nothing: Any,
        state_of: Callable[[int], SliceState],
        mark_of: Callable[[int], Hashable],
    ) -> None:
        """`nothing`: an empty vector."""
        super().__init__(
            place,
            before=before,
            after=after,
            counts=counts,
            state_of=state_of,
            mark_of=mark_of,
            tell=lambda server, slice, message: node.tell_slice(party.server(server), slice, message),
            release=node.release,
        )
        self._node, self._nothing = node, nothing
        self._shown: set[str] = set()  # names of vectors
        node.published[COMPLETE] = lambda _slice: (nothing, float(self.complete))
        node.published[kept(COPY, STATE)] = self._facts

    def begin(self) -> None:
        """Begins to copy, between two messages: the first copy is of one moment."""
        self._node.between_messages(super().begin)

    def _keep(self, at: int, facts: dict[str, Any]) -> None:
        """Keeps a copy of a neighbour's slice, and publishes it for the one that will replace that neighbour."""
        super()._keep(at, facts)
        for name in self._held[at].vectors.keys() - self._shown:
            self._shown.add(name)
            self._node.published[kept(COPY, name)] = functools.partial(self._vector, name)

    def _vector(self, name: str, at: int) -> Any:
        """Returns one vector of a copy."""
        return self._held[at].vectors[name]

    def _facts(self, at: int) -> PublishedState:
        """Returns what a copy consists of, without its vectors."""
        state = self._held[at]
        return publish_state(state.facts, state.vectors, self._nothing)
