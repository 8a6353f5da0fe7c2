"""What the slices of a server are at one version, kept while training goes on: for a checkpoint, or lest a server die.

A slice is kept after the update that brings it to that version and before any other. For a checkpoint it is kept in
memory until it has been read; weights are values, so that copies nothing. Snapshots go to disk
(`paceline.runtime.checkpointing.disk_buffer`). In a scheme that applies one update a round everybody's slices are then
those of the same round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.paramserver.gated_server import ClockedServer, among_others
from paceline.core.role import Role
from paceline.engine.optim.optimizers import ServerOptimizer
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import (
    CHECKPOINT,
    FORGET,
    LOCK_STEP,
    SNAPSHOT,
    VERSION,
    kept,
    of_capture,
    publish_state,
)
from paceline.runtime.checkpointing.disk_buffer import DiskBuffer, on_disk, unspooled

WEIGHTS = "weights"
NOTHING = Flat.wrap(torch.empty(0))


class Captures:
    """This captures the slices of one server, for one purpose. Everything happens between two messages to its roles."""

    def __init__(
        self, node: Node, hosted: Sequence[ServedSlice], rules: Sequence[ServerOptimizer], purpose: str = CHECKPOINT
    ) -> None:
        """`rules` may be replaced by others, whose state is then looked at."""
        self._node, self._hosted, self._rules, self._purpose = node, hosted, rules, purpose
        self._wanted, self._number = FORGET, 0
        self._ended = False
        self._kept: dict[int, SliceState] = {}
        self._spool: DiskBuffer | None = None
        self._shown: list[str] = []
        node.published[VERSION] = lambda _slice: (NOTHING, float(max(_version(of) or 0 for of in hosted)))
        node.published[LOCK_STEP] = lambda _slice: (NOTHING, float(all(_lock_step(of.role) for of in hosted)))

    def want(self, version: int, number: int = 0) -> None:
        """Keep each slice once it is there, as of capture `number`; FORGET what was kept."""
        self._node.between_messages(lambda: self._want(version, number))

    def end(self) -> None:
        """Nobody trains any more: what is still wanted is what there is now."""

        def end() -> None:
            self._ended = True
            self._look_at_all()

        self._node.between_messages(end)

    def _want(self, version: int, number: int) -> None:
        self._node.published.withdraw(self._shown)
        self._wanted, self._number, self._kept, self._shown = version, number, {}, []
        self._spool = DiskBuffer(FlatMemory()) if self._purpose == SNAPSHOT else None
        for at, hosted in enumerate(self._hosted):
            hosted.after.pop(self._purpose, None)
            if version != FORGET:
                hosted.after[self._purpose] = functools.partial(self._look, at)
        self._look_at_all()

    def _look_at_all(self) -> None:
        if self._wanted != FORGET:
            for at in range(len(self._hosted)):
                self._look(at)

    def _look(self, at: int) -> None:
        hosted = self._hosted[at]
        if at in self._kept or hosted.role is None:
            return
        version = _version(hosted)
        if self._ended or version is None or version >= self._wanted:
            state = of_capture(state_of(hosted.role, self._rules[at]), self._number)
            self._kept[at] = on_disk(state, self._spool) if self._spool else state
            hosted.after.pop(self._purpose, None)
            if len(self._kept) == len(self._hosted):
                self._show()

    def _show(self) -> None:
        of_each = [set(state.vectors) for state in self._kept.values()]
        # In a checkpoint all vectors are as long as the model.
        names = set.intersection(*of_each) if self._purpose == CHECKPOINT else set.union(*of_each)
        self._shown = [kept(self._purpose, STATE), *(kept(self._purpose, name) for name in names)]
        for name in names:
            self._node.published[kept(self._purpose, name)] = functools.partial(self._vector, name)
        facts = {at: publish_state(of.facts, names & of.vectors.keys(), NOTHING) for at, of in self._kept.items()}
        self._node.published[kept(self._purpose, STATE)] = facts.__getitem__

    def _vector(self, name: str, at: int) -> Any:
        return unspooled(self._kept[at].vectors[name])


def _version(hosted: ServedSlice) -> int | None:
    """The version of the slice; None where its role counts none, so that it is kept at once."""
    version: int | None = getattr(hosted.role, "version", None)
    return version


def _lock_step(role: Role | None) -> bool:
    """Does everybody wait for one round of all?"""
    clocked = isinstance(role, ClockedServer) and role.waits_for_round
    return clocked and len(set(map(id, role.homes.values()))) == 1  # type: ignore[union-attr]


def state_of(role: Role, rule: ServerOptimizer) -> SliceState:
    """Contributions that wait for their round are not in it: who waits with them makes them again."""
    w, _ = role.model()
    numbers, vectors = state_of_rule(rule, len(w))
    facts: dict[str, Any] = {"numbers": numbers, "lr": rule.lr, "tables": role.state_dict()}
    if isinstance(role, ClockedServer):
        facts |= {"version": role.version, "lock_step": _lock_step(role)}
    return SliceState({WEIGHTS: w, **vectors}, facts)


def state_of_rule(rule: ServerOptimizer, length: int) -> tuple[dict[str, float], dict[str, Flat]]:
    """Returns numbers, and vectors of that length, for `load_rule`."""
    state = rule.state()
    long = {name: v for name, v in state.items() if isinstance(v, Tensor) and v.dim() == 1 and len(v) == length}
    numbers = {name: float(v) for name, v in state.items() if name not in (*long, "lr") and _is_number(v)}
    return numbers, {name: Flat.wrap(v) for name, v in long.items()}


def _is_number(v: Any) -> bool:
    return not isinstance(v, Tensor) or v.numel() == 1


def together(state: SliceState) -> SliceState:
    """Of a server that goes back to it with all others."""
    return replace(state, facts={**state.facts, "tables": among_others(state.facts["tables"])})


def revive(state: SliceState, rule: ServerOptimizer, make_role: Callable[[Any], Role]) -> Role:
    """A role and a rule, both just made, become what `state` was taken of."""
    load_rule(rule, state.facts["numbers"], {name: v.value() for name, v in state.vectors.items() if name != WEIGHTS})
    rule.set_lr(state.facts["lr"])
    role = make_role(state.vectors[WEIGHTS])
    role.load_state_dict(state.facts["tables"])
    return role


def load_rule(rule: ServerOptimizer, numbers: dict[str, float], vectors: dict[str, Tensor]) -> None:
    """Go on where `rule` was kept, with these parts of its vectors, at its own learning rate.

    Raises KeyError when something is missing.
    """
    own = rule.state()
    state: dict[str, Any] = {name: v if name in own else torch.tensor(v) for name, v in numbers.items()}
    rule.load_state({**state, **vectors, "lr": rule.lr})
