"""Moves the state of a server's slices to a worker that saves it, and from a worker that has loaded it.

    worker reads         of a server                  what it gets
    loop 3/state         each slice                   facts of the slice as it is now, kept for worker 3
    loop 3/momentum      each slice                   that vector of the state kept for worker 3, which is then freed

    server reads         of worker 0, before training
    loaded/state         each of its slices           the rule's numbers for that slice, and the samples of all
    loaded/momentum      each of its slices           the part of that vector

A worker may read what servers publish, so saving needs no message of its own. Training goes on meanwhile. In lock-step
no update can be made while one worker saves, so all slices are of the same round.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paceline.core.coordination import party
from paceline.core.coordination.sample_leases import FIRST
from paceline.core.effects import Data
from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.sharding import Layout
from paceline.engine.vectors.flat import Flat
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import fetch, kept, publish_state
from paceline.runtime.checkpointing.slice_capture import (
    NOTHING,
    WEIGHTS,
    common_names,
    on_one_scale,
    role_of_model,
    state_to_keep,
)
from paceline.runtime.checkpointing.slice_numbers import of_model, of_slice

LOADED, TAKEN = "loaded", "taken"
"""Under these names worker 0 publishes what it has loaded, and a server publishes that it has taken it."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """Holds what the servers keep: vectors as long as the model, numbers of the rule counted over the model, what else
    the roles keep, and which samples are known to be in the model.
    """

    vectors: dict[str, Tensor]
    numbers: dict[str, float]
    of_role: dict[str, Any] = field(default_factory=dict)
    done: Data = ()


class StatesOnRequest:
    """Shows each of `workers` workers the state of this server's slices as of the moment when it asks."""

    def __init__(self, node: Node, hosted: Sequence[ServedSlice], rules: Sequence[Any], workers: int) -> None:
        """`rules`: by slice; replaced rules are followed."""
        self._node, self._hosted, self._rules = node, hosted, rules
        self._kept: dict[tuple[int, int], SliceState] = {}  # by rank and slice; at most one of each
        for rank in range(workers):
            node.published[kept(_of(rank), STATE)] = functools.partial(self._state, rank)

    def _state(self, rank: int, at: int) -> Any:
        """Publishes the state of slice `at` for a worker, and keeps its vectors until that has read them."""
        role = self._hosted[at].role
        assert role is not None, "asked for before training"
        state = self._kept[rank, at] = state_to_keep(role, self._rules[at])
        for name in state.vectors:
            self._node.published[kept(_of(rank), name)] = functools.partial(self._vector, rank, name)
        return publish_state(state.facts, state.vectors, NOTHING)

    def _vector(self, rank: int, name: str, at: int) -> Any:
        """Returns a vector of a state that was asked for, once."""
        return self._kept[rank, at].vectors.pop(name)


def _of(rank: int) -> str:
    """Returns the name under which servers publish what they keep for worker `rank`."""
    return f"loop {rank}"


def read_servers(node: Node, rank: int, layout: Layout, tensors: Sequence[int]) -> ServerState:
    """Returns the state of all servers, as worker `rank`. Raises PeerLost or TimedOut.

    `tensors`: lengths of the model's tensors. What the rule of a slice does not remember yet is zero; what the role of
    one does not keep is left out.
    """
    states: dict[int, SliceState] = {}
    for shard in sorted(set(layout.holders)):
        own = layout.of(shard)
        states |= zip(own, fetch(node, party.server(shard), range(len(own)), _of(rank)), strict=True)
    each = [states[number] for number in range(len(layout.slices))]
    vectors = {
        name: torch.cat([vector_of(state, name) for state in each])
        for name in sorted(common_names(state.vectors for state in each))
    }
    numbers_of = [state.facts["numbers"] for state in each]
    numbers = dict(numbers_of[0])
    on_one_scale(vectors, numbers, numbers_of, layout.slices)
    of_role = role_of_model(vectors, [state.facts for state in each], layout.slices)
    tables = states[layout.of(FIRST.index)[0]].facts["tables"]  # of the slice that reports leased samples
    done = tuple((epoch, start, stop) for epoch, start, stop in tables.get("done", ()))
    return ServerState(vectors, of_model(numbers, numbers_of, layout, tensors), of_role, done)


def vector_of(state: SliceState, name: str) -> Tensor:
    """Returns a vector of the state as a tensor of its own; zeros where the rule remembers nothing yet."""
    return _copy(state.vectors[name]) if name in state.vectors else torch.zeros(len(state.vectors[WEIGHTS]))


def _copy(v: Any) -> Tensor:
    """Returns a vector as a tensor of its own."""
    numbers = torch.empty(len(v))
    v.copy_into(numbers)
    return numbers


def give_servers(node: Node, state: ServerState, samples: int, layout: Layout, tensors: Sequence[int]) -> None:
    """Publishes a loaded state, and returns when all servers have taken their parts. Raises PeerLost or TimedOut."""

    def facts(number: int) -> Any:
        """Returns what the state of a slice consists of, without its vectors."""
        part = layout.slices[number]
        known = {"samples": samples, "done": state.done}
        own = {"numbers": of_slice(state.numbers, part, tensors), **known, **state.of_role}
        return publish_state(own, state.vectors, NOTHING)

    def vector(name: str, number: int) -> Any:
        """Returns the part of a vector that belongs to a slice."""
        return Flat.wrap(state.vectors[name][layout.slices[number]].clone())

    for name in state.vectors:
        node.published[kept(LOADED, name)] = functools.partial(vector, name)
    node.published[kept(LOADED, STATE)] = facts  # last: whoever has read it asks for the vectors
    for shard in sorted(set(layout.holders)):
        node.read_published_of(party.server(shard), kept(TAKEN, STATE))
    node.published.withdraw([kept(LOADED, name) for name in (*state.vectors, STATE)])


def take_loaded(node: Node, numbers: Sequence[int]) -> list[tuple[Mapping[str, Any], dict[str, Tensor]]]:
    """Returns facts and vectors of these slices of the model, as worker 0 has loaded them, for a server."""
    states = fetch(node, party.worker(0), numbers, LOADED)
    return [(state.facts, {name: _copy(v) for name, v in state.vectors.items()}) for state in states]


def say_taken(node: Node) -> None:
    """Publishes that this server has taken what worker 0 has loaded."""
    node.published[kept(TAKEN, STATE)] = lambda _slice: publish_state({}, (), NOTHING)
