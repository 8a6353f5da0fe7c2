"""Captures the large state of a worker and its role for a checkpoint, and restores it from one.

Vectors go by name, and none is longer than the model, for which receivers have room.

    memory.K        what the local optimizer remembers, in parts
    rule.NAME       the same, where the role applies its own gradients
    user.NAME       the same of the user's own optimizer, where it makes local steps
    residual.ROW    what a codec has not sent yet, over all slices; residual.ROW.NAME: what else the codec keeps of it
    buffers         batch-norm statistics
    own.NAME        what this worker's role keeps; common.NAME: what is equal on all workers
    weights, ...    model and optimizer, where the workers hold them
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from paceline.codec.base import ResidualMemory as Residual
from paceline.codec.pipeline.stage import Stage
from paceline.core.scheme import Scheme
from paceline.core.vector import cut
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.vectors.flat import Flat
from paceline.live.node.node import Node
from paceline.runtime.checkpointing.role_state import load, taken_apart, unscaled
from paceline.runtime.checkpointing.slice_capture import KEPT, load_rule, state_of, state_of_rule
from paceline.runtime.checkpointing.worker_position import Kept, Position
from paceline.runtime.worker.steps.local_work import LocalWork

MEMORY, RULE, BUFFERS, RESIDUAL, OWN, COMMON = "memory", "rule", "buffers", "residual", "own", "common"
T = TypeVar("T")
USER = "user"
"""The name of what a script's own `state` holds."""


def by_round(scheme: Scheme, servers: int) -> bool:
    """Returns True if the workers hold one and the same model and meet for nothing but means. Then one speaks
    for all. A coordinator that they ask besides keeps nothing that the model is made of."""
    alone = scheme.server(servers) is None and not scheme.composite and not scheme.needs_peers
    return alone and not scheme.workers_differ and scheme.uses_mean(servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """Holds the state of one worker, out of a checkpoint.

    entry      where it stood in its data, and its generators
    rng        state of the role's own generator, if it has one
    kept       values of the role that are no vectors, by name
    tensors    by the names above
    counts     vectors that a codec has encoded, by row
    common     what is equal on all workers; None where the servers hold the model
    scales     numbers that vectors of the role are multiplied with, where that is not 1, by name
    numbers    of the rule that the worker applies itself; `optimizer`: its vectors
    user       numbers of the user's own optimizer
    """

    entry: Position
    rng: Any = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    scales: Mapping[str, float] = field(default_factory=dict)
    common: Mapping[str, Any] | None = None
    numbers: dict[str, float] | None = None
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    user: dict[str, float] | None = None


class WorkerStateCapture:
    """Captures and restores the state of one worker. It must be called between two exchanges."""

    def __init__(
        self, node: Node, scheme: Scheme, servers: int, *, length: int, work: LocalWork, buffers: Buffers, update: Any
    ) -> None:
        """`length`: of the model's vector; `update`: the rule of this worker's role."""
        self._node, self._scheme, self._servers = node, scheme, servers
        self._length, self._work, self._buffers, self._update = length, work, buffers, update

    def take(self) -> Kept:
        """Returns the facts and vectors of this moment; what will change is copied."""
        role = self._node.role
        facts, vectors = of_stage(self._node.channel.stage, self._node.out.cut.slices)
        facts[KEPT], own = taken_apart(role.state())
        vectors |= {f"{OWN}.{name}": v for name, v in own.items()}
        if role.updates_alone:
            facts[RULE], of_rule = state_of_rule(self._update, self._length)
            vectors |= {f"{RULE}.{name}": v for name, v in of_rule.items()}
        if "rng" in vars(role):
            facts["rng"] = role.rng.getstate()
        if self._scheme.trains_locally:
            vectors |= of_optimizer(self._work.memory(), self._length)
            of_user = self._work.user_state()
            vectors |= {f"{USER}.{name}": Flat.wrap(v) for name, v in of_user.items() if isinstance(v, Tensor)}
            facts[USER] = {name: v for name, v in of_user.items() if not isinstance(v, Tensor)}
        if len(self._buffers):
            vectors[BUFFERS] = self._buffers.snapshot()
        if by_round(self._scheme, self._servers):
            state, shown = state_of(role, self._update), role.join_state()
            lock_step = self._scheme.lock_step
            facts |= {"model": [*state.vectors], "numbers": state.facts["numbers"], "lock_step": lock_step}
            facts["common"], common = taken_apart(shown)
            vectors |= state.vectors
            vectors |= {f"{COMMON}.{name}": v for name, v in common.items()}
        of_role, facts["scales"] = unscaled({name: v for name, v in vectors.items() if _of_role(name)})
        return facts, {**vectors, **of_role}

    def give_back(self, memories: WorkerState) -> None:
        """Restores `memories` in a worker whose role has just been made."""
        role, tensors, scales = self._node.role, memories.tensors, memories.scales
        load(role, memories.kept, under(OWN, tensors), under(OWN, scales))
        if memories.rng is not None:
            version, numbers, gauss = memories.rng
            role.rng = random.Random()
            role.rng.setstate((version, tuple(numbers), gauss))
        if memories.common is not None:
            found = {
                name: Flat.copy_of(v) * scales.get(f"{COMMON}.{name}", 1.0) if isinstance(v, Tensor) else v
                for name, v in memories.common.items()
            }
            role.load_join_state(found)
        if memories.numbers is not None and (memories.common is not None or role.updates_alone):
            load_rule(self._update, memories.numbers, memories.optimizer)
        if BUFFERS in tensors:
            self._buffers.load(Flat.wrap(tensors[BUFFERS]))
        memory = optimizer_memory(tensors)
        if memory is not None:
            self._work.recall(memory)
        if memories.user:
            self._work.recall_user({**memories.user, **under(USER, tensors)})
        self._node.channel.stage.recall(residuals(memories, self._node.out.cut.slices))


def _of_role(name: str) -> bool:
    """Returns True for the name of a vector of the role."""
    return name.startswith((f"{OWN}.", f"{COMMON}."))


def under(head: str, found: Mapping[str, T]) -> dict[str, T]:
    """Returns what is named HEAD.NAME, by NAME."""
    return {name.removeprefix(f"{head}."): v for name, v in found.items() if name.startswith(f"{head}.")}


def of_optimizer(memory: Flat | None, length: int) -> dict[str, Flat]:
    """Returns the local optimizer's state in parts that are at most `length` long: Adam's is two vectors of the model's
    length."""
    if memory is None:
        return {}
    parts = cut(len(memory), -(-len(memory) // length))
    return {f"{MEMORY}.{at}": memory[part] for at, part in enumerate(parts)}


def optimizer_memory(tensors: Mapping[str, Tensor]) -> Flat | None:
    """Returns the local optimizer's state, put together again; None if there is none."""
    # Sorted as texts, which keeps the order of up to ten parts.
    parts = [tensors[name] for name in sorted(tensors) if name.startswith(f"{MEMORY}.")]
    return Flat.wrap(torch.cat(parts)) if parts else None


def of_stage(stage: Stage, slices: Sequence[slice]) -> Kept:
    """Returns residuals of codecs, each joined to the length of the model; rows that do not cover it begin anew."""
    rows: dict[str, dict[int, Residual]] = {}
    for (number, name), residual in stage.residuals().items():
        rows.setdefault(name, {})[number] = residual
    counts: dict[str, Any] = {}
    vectors: dict[str, Flat] = {}
    for name, of in rows.items():
        parts = [of[number] for number in range(len(slices)) if number in of]
        if [len(part.left) for part in parts] != [part.stop - part.start for part in slices]:
            continue
        counts[name] = max(part.count for part in parts)
        vectors[f"{RESIDUAL}.{name}"] = _joined([part.left for part in parts])
        for more in parts[0].more:
            vectors[f"{RESIDUAL}.{name}.{more}"] = _joined([part.more[more] for part in parts])
    return {"counts": counts}, vectors


def _joined(parts: Sequence[Any]) -> Flat:
    """Returns the parts as one vector."""
    return Flat.wrap(torch.from_numpy(np.concatenate(parts)))


def residuals(memories: WorkerState, slices: Sequence[slice]) -> dict[tuple[int, str], Residual]:
    """Returns the residuals cut for the present slices, by slice and row."""
    found = {}
    for name, count in memories.counts.items():
        head = f"{RESIDUAL}.{name}"
        own = {key for key in memories.tensors if key == head or key.startswith(f"{head}.")}
        whole = {key[len(head) + 1 :]: memories.tensors[key].numpy() for key in own}
        for number, part in enumerate(slices):
            more = {key: v[part].copy() for key, v in whole.items() if key}
            found[number, name] = Residual(whole[""][part].copy(), count, more)
    return found
