"""Reads what callers give: keys, one or a list of them, and tensors, one or a list (one a device)."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.vectors.flat import Flat
from paceline.runtime.kvstore.placement import Key
from paceline.runtime.kvstore.rows import gradient

Keys = Key | Sequence[Key]
KINDS = (torch.float32, torch.float16, torch.bfloat16)
AnyVector = Flat | SparseFlat


def keys_of(key: Keys) -> list[Key]:
    """Returns the keys as a list, in their order. Raises ConfigError for what is no key."""
    keys: list[Any] = list(key) if isinstance(key, list | tuple) else [key]
    for one in keys:
        if isinstance(one, bool) or not isinstance(one, int | str):
            raise ConfigError(f"key {one!r}: a key is an int or a str")
    return keys


def paired(key: Keys, values: Any, what: str) -> list[tuple[Key, Any]]:
    """Returns each key with its value. A list of keys needs a list of as many values; raises ConfigError otherwise."""
    keys = keys_of(key)
    if not isinstance(key, list | tuple):
        return [(keys[0], values)]
    if not isinstance(values, list | tuple) or len(values) != len(keys):
        count = len(values) if isinstance(values, list | tuple) else 1
        raise ConfigError(f"{len(keys)} keys and {count} for {what}: give a list with one for each key")
    return list(zip(keys, values, strict=True))


def grouped(key: Keys, values: Any, what: str) -> dict[Key, Any]:
    """Returns the values by key.

    All values of a key that is given several times are one list, as of several devices.
    """
    found: dict[Key, Any] = {}
    for one, given in paired(key, values, what):
        found[one] = [*_listed(found[one]), *_listed(given)] if one in found else given
    return found


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def tensors_of(key: Key, value: Any, shape: Sequence[int] | None = None) -> list[Tensor]:
    """Returns one tensor a device. Raises ConfigError for what is no tensor of KINDS (and of that shape)."""
    tensors = _listed(value)
    if not tensors:
        raise ConfigError(f"key {key!r}: an empty list: give a tensor, or one for each device")
    expected = tuple(shape) if shape is not None else None
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ConfigError(f"key {key!r}: {type(tensor).__name__} is no torch.Tensor: torch.as_tensor makes one")
        if tensor.dtype not in KINDS:
            raise ConfigError(
                f"key {key!r}: a store keeps float32, which {tensor.dtype} may not fit into: convert with .float()"
            )
        # Without a given shape the first tensor sets it for the others.
        expected = tuple(tensor.shape) if expected is None else expected
        if tuple(tensor.shape) != expected:
            raise ConfigError(f"key {key!r} has the shape {expected}, not {tuple(tensor.shape)}")
    return tensors


def vectors_of(key: Key, value: Any, shape: Sequence[int], *, on_device: bool) -> list[AnyVector]:
    """Returns float32 copies, one a device, on the host or where the tensors are (`on_device`).

    Rows of a sparse tensor (COO, of rows) stay rows. Raises ConfigError as `tensors_of` does.
    """
    return [_vector(tensor.detach(), on_device) for tensor in tensors_of(key, value, shape)]


def total(vectors: Sequence[AnyVector]) -> AnyVector:
    """Returns a sum, never a mean, in the order of the devices."""
    result: AnyVector = functools.reduce(operator.add, vectors)
    return result


def _vector(tensor: Tensor, on_device: bool) -> AnyVector:
    if tensor.is_sparse and tensor.dim() == 2 and tensor.sparse_dim() == 1:
        tensor = tensor.coalesce()
        height, width = tensor.shape
        return gradient(height, width, tensor.indices()[0], tensor.values().to(torch.float32, copy=True))
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return Flat.copy_of(dense if on_device else dense.cpu())


def write(key: Key, out: Any, value: Tensor, *, ignore_sparse: bool = False) -> None:
    """Writes `value` over `out`, a tensor or one for each device, of any of KINDS, dense or sparse (COO).

    With `ignore_sparse` sparse ones are left as they are. Raises ConfigError for those of another shape or layout.
    """
    with torch.no_grad():
        for tensor in tensors_of(key, out, value.shape):
            if tensor.layout == torch.strided:
                tensor.copy_(value)
            elif not ignore_sparse:
                write_sparse(key, tensor, rows_that_are_not_zero(value))


def rows_that_are_not_zero(value: Tensor) -> Tensor:
    """Returns `value`, of one dimension or more, as a sparse tensor of rows (COO).

    torch's own `to_sparse(1)` takes seconds for 2000 rows of 2000.
    """
    rows = (value != 0).reshape(len(value), -1).any(1).nonzero()[:, 0]
    return torch.sparse_coo_tensor(rows[None], value[rows], value.shape, is_coalesced=True, check_invariants=False)


def write_sparse(key: Key, out: Tensor, value: Tensor) -> None:
    """Makes `out` the same sparse tensor as `value`. Raises ConfigError for a layout other than COO."""
    if not out.is_sparse:
        raise ConfigError(f"key {key!r}: out is a tensor of layout {out.layout}: give a dense one, or .to_sparse(1)")
    out.copy_(value.to(out.device, out.dtype))


def spread(values: Any, count: int, what: str) -> list[Any]:
    """Returns a list with one tensor for each of `count`; anything but such a list is the same for all. Raises
    ConfigError.
    """
    several = isinstance(values, list | tuple) and all(isinstance(one, Tensor | list | tuple) for one in values)
    if not several or not values:
        return [values] * count
    if len(values) != count:
        raise ConfigError(f"{count} tensors or keys and {len(values)} for {what}: give one for all, or one for each")
    return list(values)


def row_numbers(key: Key, row_ids: Any, height: int) -> Tensor:
    """Returns the rows, rising, each once. Raises ConfigError for some that a table of `height` rows does not have."""
    rows: Tensor = torch.unique(torch.as_tensor(row_ids).detach().cpu().to(torch.int64))
    if len(rows) and not 0 <= int(rows[0]) <= int(rows[-1]) < height:
        raise ConfigError(f"key {key!r}: its rows go from 0 to {height - 1}")
    return rows


def shares_of(samples: int, work_load_list: Sequence[float]) -> list[slice]:
    """Returns where each device's part of one worker's batch lies: n_i = round(w_i samples / sum of w).

    A shortfall goes to the last device, an excess is taken from the last (MXNet's `work_load_list`). Gradients are
    summed, so that samples count alike wherever they are. Raises ConfigError where a device would have none.
    """
    whole = sum(work_load_list)
    if not work_load_list or min(work_load_list) <= 0:
        raise ConfigError(f"work_load_list = {list(work_load_list)}: a positive number for each device")
    edges = [0]
    for load in work_load_list[:-1]:
        edges.append(min(samples, edges[-1] + round(load * samples / whole)))
    edges.append(samples)
    if any(a == b for a, b in itertools.pairwise(edges)):
        raise ConfigError(f"{samples} samples are too few for work_load_list = {list(work_load_list)}: larger batches")
    return [slice(a, b) for a, b in itertools.pairwise(edges)]
