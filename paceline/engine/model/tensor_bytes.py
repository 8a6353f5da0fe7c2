"""Reads, writes and compares the numbers of any tensor as bytes, piece by piece, where the tensor lies.

kind of tensor                      parts that have its numbers
strided                             itself
expanded                            one of the elements that share memory
sparse, quantized, of a subclass    its plain parts: indices and values, integers and scales
of the device meta, opaque          none

The parts of a sparse or quantized tensor are written by a new tensor that takes its place; all others where they lie.
Nothing here calls `numpy()`, after which torch lets nobody resize a tensor, as observers of quantization do.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PIECE = 16 << 20
"""Bytes of a piece that is read or written at once."""
DIGEST_BYTES = 32
_BLOCK = 1 << 21  # bytes that are compared at once, which stay in a processor's cache
_SPREAD, _SHIFT = -7046029254386353131, 29


@dataclass(frozen=True, slots=True)
class TensorPart:
    """Holds numbers of a tensor, `name` says which. `in_place`: what is written here is the tensor's."""

    name: str
    tensor: Tensor
    in_place: bool = True


def parts_of(t: Tensor) -> list[TensorPart]:
    """Returns the parts that have the numbers of `t`; none where they cannot be read."""
    if t.is_meta:
        return []
    if hasattr(t, "__tensor_flatten__"):
        inner = {name: parts_of(getattr(t, name)) for name in t.__tensor_flatten__()[0]}
        if not all(inner.values()):
            return []
        return [TensorPart(f".{name}{p.name}", p.tensor, p.in_place) for name, parts in inner.items() for p in parts]
    if found := _taken_apart(t):
        return [TensorPart(name, part, in_place=False) for name, part in found.items()]
    return [TensorPart("", _alone(t))] if t.layout is torch.strided and not t.is_quantized else []


def put_together(t: Tensor, parts: Sequence[Tensor]) -> None:
    """Gives a tensor whose parts are not in place the numbers of these."""
    torch_: Any = torch  # whose annotations lack these forms
    checks = {"check_invariants": True}  # or numbers of another process could crash this one
    with torch.no_grad():
        if t.is_quantized:
            ints, scale, zero = parts
            if t.qscheme() == torch.per_channel_affine:
                t.data = torch._make_per_channel_quantized_tensor(ints, scale, zero, t.q_per_channel_axis())
            else:
                t.data = torch._make_per_tensor_quantized_tensor(ints, float(scale), int(zero))
        elif t.layout is torch.sparse_coo:
            t.data = torch_.sparse_coo_tensor(*parts, t.shape, is_coalesced=True, **checks)
        else:
            new = torch_.sparse_compressed_tensor(*parts, t.shape, layout=t.layout, **checks)
            t.resize_as_sparse_(new).copy_(new)


def _taken_apart(t: Tensor) -> dict[str, Tensor]:
    """Returns the parts of a sparse or quantized tensor by name; none for any other."""
    if t.layout is torch.sparse_coo:
        whole = t.detach().coalesce()
        return {".indices": whole.indices(), ".values": whole.values()}
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return {".rows": t.crow_indices(), ".columns": t.col_indices(), ".values": t.values().detach()}
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return {".columns": t.ccol_indices(), ".rows": t.row_indices(), ".values": t.values().detach()}
    if t.is_quantized and t.qscheme() == torch.per_tensor_affine:
        scale, zero = torch.tensor([t.q_scale()], dtype=torch.float64), torch.tensor([t.q_zero_point()])
        return {".integers": t.int_repr(), ".scale": scale, ".zero": zero}
    if t.is_quantized and t.qscheme() == torch.per_channel_affine:
        return {".integers": t.int_repr(), ".scales": t.q_per_channel_scales(), ".zeros": t.q_per_channel_zero_points()}
    return {}


def _alone(t: Tensor) -> Tensor:
    """Returns `t` with one of the elements that share memory, as after `expand`."""
    if all(t.stride()) or not t.numel():
        return t
    sizes = [size if stride else 1 for size, stride in zip(t.shape, t.stride(), strict=True)]
    return t.detach().as_strided(sizes, [stride or 1 for stride in t.stride()], t.storage_offset())


# ---- pieces ------------------------------------------------------------------------------------------------------
def nbytes_of(t: Tensor) -> int:
    return t.numel() * t.element_size()


def read_bytes(t: Tensor, start: int, stop: int) -> Tensor:
    """Returns these bytes of `t`, of whole elements in the order of its dimensions, on its device; perhaps a view."""
    size = t.element_size()
    region, before = _rows(t.detach(), start // size, stop // size)
    flat = region.resolve_conj().resolve_neg().contiguous().view(-1)[before : before + (stop - start) // size]
    return flat.view(torch.uint8)


def write_bytes(t: Tensor, start: int, data: Tensor) -> None:
    """Writes bytes that `read_bytes` gave, on any device, to the same place of a tensor of this shape and type."""
    size = t.element_size()
    numbers = data.to(t.device).clone().view(t.dtype)
    with torch.no_grad():
        region, before = _rows(t.detach(), start // size, start // size + len(numbers))
        if region.is_contiguous():
            region.view(-1)[before : before + len(numbers)].copy_(numbers)
            return
        whole = region.contiguous()
        whole.view(-1)[before : before + len(numbers)].copy_(numbers)
        region.copy_(whole)


def _rows(t: Tensor, start: int, stop: int) -> tuple[Tensor, int]:
    """Returns a part of `t` that holds its elements `start` to `stop`, and how many others come first in it."""
    if t.is_contiguous():
        return t.view(-1)[start:stop], 0
    t = t.squeeze()
    row = max(1, t[0].numel())
    return t[start // row : -(-stop // row)], start % row


# ---- comparison --------------------------------------------------------------------------------------------------
def digest_of(t: Tensor, passed: Callable[[int], None] = lambda nbytes: None) -> bytes:
    """Returns bytes that are the same for the same type, shape and numbers, on any device: one pass, a block at a time.

    A block's sum, of 64-bit words times odd factors that differ, is exact on any device, and one changed word changes
    it. It keeps no secret: who wants to send other numbers need not forge it. `passed` is told of each block.
    """
    total, room = nbytes_of(t), torch.zeros(_BLOCK, dtype=torch.uint8, device=t.device)
    words, factors = room.view(torch.int64), _factors().to(t.device)
    # One room for all blocks: what each would allocate and free leaves holes between the sums, a hundred MB of them.
    mixed, shifted = torch.empty_like(words), torch.empty_like(words)
    sums = torch.empty(-(-total // _BLOCK), dtype=torch.int64, device=t.device)
    for i, start in enumerate(range(0, total, _BLOCK)):
        stop = min(total, start + _BLOCK)
        if stop - start < _BLOCK:
            room.zero_()
        room[: stop - start].copy_(read_bytes(t, start, stop))
        torch.mul(words, _SPREAD, out=mixed)
        torch.bitwise_right_shift(mixed, _SHIFT, out=shifted)
        mixed ^= shifted.bitwise_and_((1 << 64 - _SHIFT) - 1)
        torch.sum(mixed.mul_(factors), 0, out=sums[i])
        passed(stop - start)
    found = hashlib.sha256(repr((str(t.dtype), tuple(t.shape))).encode())
    found.update(repr(sums.tolist()).encode())
    return found.digest()


@functools.cache
def _factors() -> Tensor:
    """Returns an odd factor for each word of a block: those of splitmix64, by arithmetic that is the same anywhere."""
    x = torch.arange(1, _BLOCK // 8 + 1) * _SPREAD
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685), (31, 1)):
        x = (x ^ ((x >> shift) & ((1 << 64 - shift) - 1))) * factor
    return x | 1
