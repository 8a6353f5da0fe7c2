"""Reads and writes what the optimizer of one rank remembers of the blocks that it holds.

The state is packed as that of a worker of one process (`paceline.engine.optim.packed_state`): numbers, which are the
same on all ranks, and vectors with one number for each number of this rank's trained parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from paceline.engine.optim.packed_state import pack, unpack
from paceline.engine.sharded.blocks import is_sharded, local_of
from paceline.engine.sharded.local_parts import LocalParts, aligned


class LocalState:
    """Holds the state of the optimizer of one rank, by the blocks of its parameters."""

    def __init__(self, parts: LocalParts) -> None:
        self._parts = parts

    def take(self) -> dict[str, Tensor | float]:
        """Returns a copy of the state, packed, in host memory."""
        states = [self._parts.optimizer.state.get(p, {}) for p in self._parts.parameters]
        local = [
            {name: _local(v, p) if isinstance(v, Tensor) else v for name, v in state.items()}
            for state, p in zip(states, self._parts.parameters, strict=True)
        ]
        return pack(local, [local_of(p).numel() for p in self._parts.parameters])

    @property
    def is_by_blocks(self) -> bool:
        """Returns True if each tensor of the state has the shape of its parameter, so that ranks' blocks can be joined.

        Counts, which have no dimension, are the same on all ranks.
        """
        of = self._parts.optimizer.state
        found = [(v, p) for p in self._parts.parameters for v in of.get(p, {}).values() if isinstance(v, Tensor)]
        return all(_is_block(v, p) for v, p in found if v.dim())

    def owned(self, state: Mapping[str, Tensor | float], name: str, numbers: Iterable[int]) -> Tensor:
        """Returns the blocks of these parameters of one of the vectors; zeros where the state has no such vector."""
        lengths = [local_of(p).numel() for p in self._parts.parameters]
        vector = state.get(name)
        if not isinstance(vector, Tensor):
            vector = torch.zeros(sum(lengths))
        blocks = torch.split(vector, lengths)
        chosen = [blocks[i] for i in numbers]
        return torch.cat(chosen) if chosen else torch.empty(0)

    def load(self, state: Mapping[str, Tensor | float]) -> None:
        """Puts the optimizer into a state that `take` has returned, or one gathered of all ranks and cut again."""
        parameters = self._parts.parameters
        groups = {p: group for group in self._parts.optimizer.param_groups for p in group["params"]}
        found = unpack(dict(state), [local_of(p) for p in parameters])
        self._parts.optimizer.state.clear()
        for p, own in zip(parameters, found, strict=True):
            if own:
                # torch keeps the count of steps on the host, unless the kernel that reads it runs on the device.
                on_device = groups[p].get("fused") or groups[p].get("capturable")
                self._parts.optimizer.state[p] = {
                    name: _placed(v, p, on_device=bool(on_device)) for name, v in own.items()
                }


def _is_block(v: Any, p: Any) -> bool:
    """Returns True if a tensor of the state has a number for each one of its parameter, and lies where that lies."""
    return bool(v.shape == p.shape) and is_sharded(v) == is_sharded(p)


def _local(v: Any, p: Any) -> Tensor:
    """Returns what this rank has of a tensor of the state."""
    return local_of(aligned(v, p) if _is_block(v, p) else v)


def _placed(v: Any, p: Any, *, on_device: bool) -> Any:
    """Returns a block as the parameter is placed, on its device; counts of steps stay on the host, if they may."""
    if not isinstance(v, Tensor):
        return v
    if not v.dim():
        return v.to(local_of(p).device) if on_device else v
    placed = torch.zeros_like(p.detach(), dtype=v.dtype)
    if v.shape != local_of(placed).shape:
        return v.to(local_of(p).device)
    local_of(placed).copy_(v)
    return placed
