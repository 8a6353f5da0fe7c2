"""Says which block of a tensor each process holds.

    weight [6, 4], Shard(0) on 2 ranks     rank 0: offset (0, 0), shape (3, 4); rank 1: offset (3, 0), shape (3, 4)
    weight [6, 4], Shard(1) on 2 ranks     rank 0: offset (0, 0), shape (6, 2); rank 1: offset (0, 2), shape (6, 2)
    bias [6], replicated                   both: offset (0,), shape (6,); rank 0 is the one that sends it

A block is a box of the whole tensor. Of equal blocks the first rank is the owner: it sends the block, and all holders
receive it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from torch import Tensor

from paceline.core.errors import ConfigError


class TensorBlock(msgspec.Struct, frozen=True):
    """Describes a box within a tensor: where it begins, and how long it is in each dimension."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Returns how many numbers the block has; 0 for a rank that holds nothing of the tensor."""
        return math.prod(self.shape)

    def of(self, whole: Tensor) -> Tensor:
        """Returns the block's view of the whole tensor."""
        for dim, (start, length) in enumerate(zip(self.offset, self.shape, strict=True)):
            whole = whole.narrow(dim, start if length else 0, length)
        return whole


class PartLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the tensors that one rank holds: names, shapes of the whole tensors, and its own blocks."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    blocks: tuple[TensorBlock, ...]


def is_sharded(t: Tensor) -> bool:
    """Returns True for a DTensor, of which this process may hold a part only."""
    return any(kind.__name__ == "DTensor" for kind in type(t).__mro__)


def local_of(t: Any) -> Tensor:
    """Returns the memory that this process has of a tensor. Writing to it is no change that torch would count."""
    local: Tensor = t.to_local() if is_sharded(t) else t
    return local.data


def block_of(name: str, t: Any) -> TensorBlock:
    """Returns the block of `t` that this process holds. Raises ConfigError for placements that are no blocks."""
    if not is_sharded(t):
        return TensorBlock((0,) * t.dim(), tuple(t.shape))
    if any(placement.is_partial() for placement in t.placements):
        raise ConfigError(
            f"parameter {name} is placed as {t.placements}: a worker of several devices takes Shard and Replicate"
        )
    block = _of_placements(t)
    if block.shape != tuple(t.to_local().shape):
        raise ConfigError(
            f"parameter {name}: this process holds {tuple(t.to_local().shape)} of {tuple(t.shape)}, where "
            f"{t.placements} gives {block.shape}; shard it evenly"
        )
    return block


def _of_placements(t: Any) -> TensorBlock:
    """Returns the block of a DTensor, as its placements say: each shards what those before it have left, by chunks."""
    if any(placement.is_shard() and type(placement).__name__ != "Shard" for placement in t.placements):
        # Sharded in an order that is not the mesh's, as fully_shard over tensor parallelism does in one dimension.
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        shape, offset = compute_local_shape_and_global_offset(t.shape, t.device_mesh, t.placements)
        return TensorBlock(tuple(offset), tuple(shape))
    starts, lengths = [0] * t.dim(), list(t.shape)
    for at, size, placement in zip(t.device_mesh.get_coordinate(), t.device_mesh.shape, t.placements, strict=True):
        if placement.is_shard():
            dim = placement.dim
            chunk = -(-lengths[dim] // size)
            before = min(at * chunk, lengths[dim])
            starts[dim], lengths[dim] = starts[dim] + before, min(chunk, lengths[dim] - before)
    return TensorBlock(tuple(starts), tuple(lengths))


def owners(layouts: Sequence[PartLayout]) -> list[list[int]]:
    """Returns, for each rank, the numbers of the tensors whose block it sends.

    Raises ConfigError where the ranks hold different tensors, or together not each number of each tensor once.
    """
    first = layouts[0]
    for rank, layout in enumerate(layouts):
        if (layout.names, layout.shapes) != (first.names, first.shapes):
            name = next((n for n in (*layout.names, *first.names) if (n in layout.names) != (n in first.names)), "")
            raise ConfigError(
                f"ranks 0 and {rank} of this worker hold different parameters{f' ({name})' if name else ''}: give the "
                "group whose ranks share the whole model; pipeline stages are workers' parts that cannot be joined yet"
            )
    sends: list[list[int]] = [[] for _ in layouts]
    for i, (name, shape) in enumerate(zip(first.names, first.shapes, strict=True)):
        seen: dict[TensorBlock, int] = {}
        for rank, layout in enumerate(layouts):
            if layout.blocks[i].numel and seen.setdefault(layout.blocks[i], rank) == rank:
                sends[rank].append(i)
        if sum(block.numel for block in seen) != math.prod(shape) or _overlap(list(seen)):
            raise ConfigError(
                f"the ranks of this worker do not hold each number of parameter {name} {list(shape)} once: give "
                "paceline.join the group that spans the parameter's whole mesh"
            )
    return sends


def _overlap(blocks: Sequence[TensorBlock]) -> bool:
    """Returns True if two of the blocks have a number in common."""
    return any(
        all(
            a < b + m and b < a + n for a, n, b, m in zip(one.offset, one.shape, other.offset, other.shape, strict=True)
        )
        for at, one in enumerate(blocks)
        for other in blocks[:at]
    )
