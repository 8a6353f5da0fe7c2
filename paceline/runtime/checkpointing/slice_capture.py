"""Keeps the state of a server's slices at one version while training goes on: for a checkpoint, or for a replacement.

A slice is kept after the update that brings it to that version and before any other. For a checkpoint it is kept in
memory until it has been read; weights are values, so keeping them copies nothing. Snapshots go to disk
(`paceline.runtime.checkpointing.disk_buffer`). In a scheme that applies one update a round, all slices are then of
the same round.

    want(12)             slices at version 10, 11: nothing yet
    slice 0 reaches 12   kept; training of slice 0 goes on to 13
    slice 1 reaches 12   kept; now all are, and they are published for the evaluator to read
    want(FORGET)         the kept states are freed
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.fault_tolerance.snapshots import FORGET, WantedCapture
from paceline.core.paramserver.clocks import among_others
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.role import Role
from paceline.engine.optim.optimizers import ServerOptimizer
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import CHECKPOINT, LOCK_STEP, SNAPSHOT, VERSION, kept, of_capture, publish_state
from paceline.runtime.checkpointing.disk_buffer import DiskBuffer, on_disk, unspooled
from paceline.runtime.checkpointing.role_state import load, taken_apart, unscaled

WEIGHTS, ROLE = "weights", "role"
"""The name of a slice's weights among its vectors, and what stands before the names of those that its role keeps."""
KEPT, SCALES = "kept", "scales"
"""The names of the facts that a role keeps, and of the scales of its vectors."""
NOTHING = Flat.wrap(torch.empty(0))
"""The vector of an answer that consists of facts alone."""


class Captures:
    """Captures the slices of one server, for one purpose. Everything happens between two messages to its roles."""

    def __init__(
        self, node: Node, hosted: Sequence[ServedSlice], rules: Sequence[ServerOptimizer], purpose: str = CHECKPOINT
    ) -> None:
        """Publishes version and lock-step of the slices. `rules`: by slice; replaced rules are followed."""
        self._node, self._hosted, self._rules, self._purpose = node, hosted, rules, purpose
        self._wanted = WantedCapture(len(hosted))
        self._kept: dict[int, SliceState] = {}
        self._spool: DiskBuffer | None = None
        self._shown: list[str] = []
        node.published[VERSION] = lambda _slice: (NOTHING, float(max(_version(of) or 0 for of in hosted)))
        node.published[LOCK_STEP] = lambda _slice: (NOTHING, float(all(_lock_step(of.role) for of in hosted)))

    def want(self, version: int, number: int = 0) -> None:
        """Keeps each slice once it has reached `version`, as part of capture `number`; FORGET drops what was kept."""
        self._node.between_messages(lambda: self._want(version, number))

    def end(self) -> None:
        """Notes that nobody trains any more: what is still wanted is captured as it is now."""

        def end() -> None:
            self._wanted.end()
            self._look_at_all()

        self._node.between_messages(end)

    def _want(self, version: int, number: int) -> None:
        """Begins to wait for `version`: what was kept before is dropped, and each slice is looked at after updates."""
        self._node.published.withdraw(self._shown)
        self._wanted.want(version, number)
        self._kept, self._shown = {}, []
        self._spool = DiskBuffer(FlatMemory()) if self._purpose == SNAPSHOT else None
        for at, hosted in enumerate(self._hosted):
            hosted.after.pop(self._purpose, None)
            if version != FORGET:
                hosted.after[self._purpose] = functools.partial(self._look, at)
        self._look_at_all()

    def _look_at_all(self) -> None:
        """Looks at every slice, if a capture is wanted."""
        if self._wanted.wanted:
            for at in range(len(self._hosted)):
                self._look(at)

    def _look(self, at: int) -> None:
        """Keeps slice `at` if it has reached the wanted version and is not kept yet."""
        hosted = self._hosted[at]
        if hosted.role is not None and self._wanted.keeps(at, _version(hosted)):
            taken = state_to_keep if self._purpose == CHECKPOINT else state_of
            state = of_capture(taken(hosted.role, self._rules[at]), self._wanted.number)
            self._kept[at] = on_disk(state, self._spool) if self._spool else state
            hosted.after.pop(self._purpose, None)
            if self._wanted.complete:
                self._node.after_replicated(functools.partial(self._show, self._kept))

    def _show(self, slices: dict[int, SliceState]) -> None:
        """Publishes the `slices` that were kept, once the copies have that state, too.

        Otherwise all could return to a state later than that of a server which was replaced from its copy, and others
        may have got samples since that are in that state.
        """
        if slices is not self._kept:
            return  # another capture was begun, or none is wanted any more
        of_each = [set(state.vectors) for state in self._kept.values()]
        # In a checkpoint all vectors are as long as the model.
        names = common_names(of_each) if self._purpose == CHECKPOINT else set.union(*of_each)
        self._shown = [kept(self._purpose, STATE), *(kept(self._purpose, name) for name in names)]
        for name in names:
            self._node.published[kept(self._purpose, name)] = functools.partial(self._vector, name)
        shown = {at: names if self._purpose == CHECKPOINT else names & of.vectors.keys() for at, of in slices.items()}
        facts = {at: publish_state(of.facts, shown[at], NOTHING) for at, of in slices.items()}
        self._node.published[kept(self._purpose, STATE)] = facts.__getitem__

    def _vector(self, name: str, at: int) -> Any:
        """Returns one kept vector of slice `at`, read back from disk if it lies there; zeros of what its rule does not
        remember yet."""
        vectors = self._kept[at].vectors
        return unspooled(vectors[name]) if name in vectors else vectors[WEIGHTS] * 0.0


def common_names(of_each: Iterable[Collection[str]]) -> set[str]:
    """Returns the vectors that a model has whose slices have these: what the role of each slice keeps, and what the
    rule of any remembers. A rule that has made no step yet, since no gradient came, remembers zeros."""
    found = [set(names) for names in of_each]
    of_rules = {name for name in set.union(*found) if not name.startswith(f"{ROLE}.")}
    return of_rules | set.intersection(*found)


def _version(hosted: ServedSlice) -> int | None:
    """Returns the version of the slice; None where its role counts none, so that it is kept at once."""
    version: int | None = getattr(hosted.role, "version", None)
    return version


def _lock_step(role: Role | None) -> bool:
    """Returns True if everybody waits for one round of all workers, as one that is alone does."""
    if role is not None and len(role.workers) == 1:
        return True
    clocked = isinstance(role, ClockedServer) and role.waits_for_round
    return clocked and len(set(map(id, role.homes.values()))) == 1  # type: ignore[union-attr]


def state_of(role: Role, rule: ServerOptimizer) -> SliceState:
    """Returns the state of a slice: weights, state of its rule, tables of its role.

    Contributions that wait for their round are left out: who waits with them makes them again.
    """
    w, _ = role.model()
    numbers, vectors = state_of_rule(rule, len(w))
    facts: dict[str, Any] = {"numbers": numbers, "lr": rule.lr, "tables": role.state_dict()}
    version = getattr(role, "version", None)
    if version is not None:
        facts |= {"version": version, "lock_step": _lock_step(role)}
    return SliceState({WEIGHTS: w, **vectors}, facts)


def state_to_keep(role: Role, rule: ServerOptimizer) -> SliceState:
    """Returns the same with all else that a role keeps for a later run (`Role.state`)."""
    state = state_of(role, rule)
    kept, of_role = taken_apart(role.state())
    vectors, scales = unscaled({f"{ROLE}.{name}": v for name, v in of_role.items()})
    more = {KEPT: kept, SCALES: scales, "samples_seen": role.samples_seen}
    return SliceState({**state.vectors, **vectors}, {**state.facts, **more})


def state_of_rule(rule: ServerOptimizer, length: int) -> tuple[dict[str, float], dict[str, Flat]]:
    """Returns the numbers of a rule's state, and its vectors of `length` numbers, as `load_rule` takes them back."""
    state = rule.state()
    long = {name: v for name, v in state.items() if isinstance(v, Tensor) and v.dim() == 1 and len(v) == length}
    numbers = {name: float(v) for name, v in state.items() if name not in (*long, "lr") and _is_number(v)}
    return numbers, {name: Flat.wrap(v) for name, v in long.items()}


def _is_number(v: Any) -> bool:
    """Returns True for a number, or a tensor with just one."""
    return not isinstance(v, Tensor) or v.numel() == 1


def together(state: SliceState) -> SliceState:
    """Returns the state for a server that goes back to it together with all others."""
    return replace(state, facts={**state.facts, "tables": among_others(state.facts["tables"])})


def revive(state: SliceState, rule: ServerOptimizer, make_role: Callable[[Any], Role]) -> Role:
    """Returns a role that goes on from `state`, with a rule that does; both were just made."""
    load_rule(rule, state.facts["numbers"], {name: v.value() for name, v in state.vectors.items() if name != WEIGHTS})
    rule.set_lr(state.facts["lr"])
    role = make_role(state.vectors[WEIGHTS])
    role.load_state_dict(state.facts["tables"])
    return role


def load_rule(rule: ServerOptimizer, numbers: dict[str, float], vectors: dict[str, Tensor]) -> None:
    """Loads the kept state of a rule: numbers, and these parts of its vectors. The learning rate stays that of `rule`.

    Raises KeyError when something is missing.
    """
    own = rule.state()
    state: dict[str, Any] = {name: v if name in own else torch.tensor(v) for name, v in numbers.items()}
    of_rule = {name: v for name, v in vectors.items() if not name.startswith(f"{ROLE}.")}
    rule.load_state({**state, **of_rule, "lr": rule.lr})


def on_one_scale(
    vectors: dict[str, Tensor],
    numbers: dict[str, float],
    numbers_of: Sequence[dict[str, float]],
    parts: Sequence[slice],
) -> None:
    """Multiplies momentum out where slices keep it with different scales, so that one number holds for the whole
    vector.

    The scale of a slice depends on whose push came first. Where all slices agree, nothing changes, so nothing is
    rounded.
    """
    for name in vectors:
        head, momentum, rest = name.rpartition("momentum")  # with the head of a rule within a rule
        scales = [of.get(f"{head}scale", 1.0) for of in numbers_of]
        if momentum and not rest and len(set(scales)) > 1:
            for part, scale in zip(parts, scales, strict=True):
                vectors[name][part] *= scale
            numbers[f"{head}scale"] = 1.0


def role_of_model(
    vectors: dict[str, Tensor], facts_of: Sequence[dict[str, Any]], parts: Sequence[slice]
) -> dict[str, Any]:
    """Returns what the roles of all slices keep besides vectors; `facts_of`: of each slice.

    The values of the first slice go for all. Vectors whose slices have unlike scales are multiplied out.
    """
    scales: dict[str, float] = {}
    for name in [name for name in vectors if name.startswith(f"{ROLE}.")]:
        found = [of.get(SCALES, {}).get(name, 1.0) for of in facts_of]
        if len(set(found)) == 1:
            scales |= {name: found[0]} if found[0] != 1.0 else {}
            continue
        for part, scale in zip(parts, found, strict=True):
            vectors[name][part] *= scale
    return {KEPT: facts_of[0].get(KEPT, {}), SCALES: scales}


def load_role(role: Role, facts: Mapping[str, Any], vectors: Mapping[str, Tensor]) -> None:
    """Lets the role of a slice go on from what was kept; `vectors`: its parts of those of the model. Raises
    ConfigError."""
    head = f"{ROLE}."
    own = {name.removeprefix(head): v for name, v in vectors.items() if name.startswith(head)}
    scales = {name.removeprefix(head): scale for name, scale in facts.get(SCALES, {}).items()}
    load(role, facts.get(KEPT, {}), own, scales)
