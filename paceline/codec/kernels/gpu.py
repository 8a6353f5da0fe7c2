"""Encodes where a gradient lies on a GPU: the loops of `cpu.py`, in Triton, so that bytes leave it and not numbers.

Import it when the first such gradient comes, never before. It raises ImportError where there is no Triton, and the
numbers are then encoded on the host. Bytes and residuals are those of the loops on the host, bit for bit, except for
the last bit of a mean (`sign`), whose terms are added up in another order. So a program works on whole bytes, or on one
block of numbers that share a scale, divides as IEEE 754 has it (`div_rn`), and fuses no product with the sum after it.

g: what is to be sent, r: the residual, both float32 of length n on one device; wild: an int32 that becomes 1 where a
number is not finite.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
import triton.language as tl

from paceline.codec.base import Bytes, Floats, whole
from paceline.codec.small_tensors import Parts

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1024  # bytes, or numbers, that a program handles together
ROUNDING: tl.constexpr = tl.constexpr(12582912.0)  # 1.5 * 2**23: adding and subtracting it rounds to a whole number
INFINITY: tl.constexpr = tl.constexpr(float("inf"))
SUBNORMAL: tl.constexpr = tl.constexpr(1.2e-38)  # the inverse of a smaller scale may overflow


def kernel(loop: Callable[..., Any]) -> Any:
    """Compiles `loop` for the GPU when it is called first."""
    return triton.jit(loop)


# ---- thresholds --------------------------------------------------------------------------------------------------
# Writes CHUNK bytes, of four numbers each; see `cpu.encode_2bit`.
@kernel
def _encode_2bit(g, r, t, out, wild, n, size, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Packs four codes in a byte, and takes what they stand for out of the residual; `wild` becomes 1 for Inf or
    NaN.
    """
    at = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    byte = tl.zeros((CHUNK,), tl.int32)
    bad = tl.zeros((CHUNK,), tl.int32)
    for j in tl.static_range(4):
        i = at * 4 + j
        x = tl.load(r + i, mask=i < n, other=0.0) + tl.load(g + i, mask=i < n, other=0.0)
        up, down = x >= t, x <= -t
        byte = (byte << 2) | tl.where(up, 3, tl.where(down, 2, 0))
        tl.store(r + i, x - tl.where(up, t, tl.where(down, -t, 0.0)), mask=i < n)
        bad = bad | tl.where(tl.abs(x) < INFINITY, 0, 1)
    tl.store(out + at, byte.to(tl.uint8), mask=at < size)
    tl.atomic_max(wild, tl.max(bad, 0))


# Writes CHUNK bytes, of eight numbers each; see `cpu.encode_1bit`.
@kernel
def _encode_1bit(g, r, t, out, wild, n, size, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Packs eight codes in a byte, and takes what they stand for out of the residual; `wild` as above."""
    at = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    byte = tl.zeros((CHUNK,), tl.int32)
    bad = tl.zeros((CHUNK,), tl.int32)
    for j in tl.static_range(8):
        i = at * 8 + j
        x = tl.load(r + i, mask=i < n, other=0.0) + tl.load(g + i, mask=i < n, other=0.0)
        up = x > t
        byte = (byte << 1) | tl.where(up & (i < n), 1, 0)
        tl.store(r + i, x - tl.where(up, 1.0, -1.0), mask=i < n)
        bad = bad | tl.where(tl.abs(x) < INFINITY, 0, 1)
    tl.store(out + at, byte.to(tl.uint8), mask=at < size)
    tl.atomic_max(wild, tl.max(bad, 0))


@kernel
def _decode_2bit(data, t, out, n, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    byte = tl.load(data + i // 4, mask=i < n, other=0).to(tl.int32)
    code = (byte >> (6 - 2 * (i % 4)).to(tl.int32)) & 3
    tl.store(out + i, tl.where(code == 3, t, tl.where(code == 2, -t, 0.0)), mask=i < n)


# ---- scales: a program for each block of numbers -----------------------------------------------------------------
# Encodes one block of numbers in two passes: the scale first, then the bits; see `cpu.encode_sign`.
@kernel
def _encode_sign(g, r, block, scales, bits, wild, n, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Makes scale and bits of one block: a pass for the mean magnitude, and a second one for the signs."""
    begin = tl.program_id(0).to(tl.int64) * block
    end = tl.minimum(begin + block, n)
    # float64, as on the host: the mean of many numbers would lose bits.
    total = tl.zeros((CHUNK,), tl.float64)
    for at in range(0, block, CHUNK):
        i = begin + at + tl.arange(0, CHUNK)
        x = tl.load(r + i, mask=i < end, other=0.0) + tl.load(g + i, mask=i < end, other=0.0)
        total += tl.abs(x).to(tl.float64)
    scale = (tl.sum(total, 0) / (end - begin).to(tl.float64)).to(tl.float32)
    tl.store(scales + tl.program_id(0), scale)
    tl.atomic_max(wild, tl.where(scale < INFINITY, 0, 1))
    # Second pass: whole bytes, so that no two programs write the same one; `block` is a multiple of 8.
    for at in range(0, block // 8, CHUNK):
        b = begin // 8 + at + tl.arange(0, CHUNK)
        byte = tl.zeros((CHUNK,), tl.int32)
        for j in tl.static_range(8):
            i = b * 8 + j
            x = tl.load(r + i, mask=i < end, other=0.0) + tl.load(g + i, mask=i < end, other=0.0)
            byte = (byte << 1) | tl.where((x >= 0) & (i < end), 1, 0)
            tl.store(r + i, x - tl.where(x >= 0, scale, -scale), mask=i < end)
        tl.store(bits + b, byte.to(tl.uint8), mask=b * 8 < end)


@kernel
def _decode_sign(scales, bits, block, out, n, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    byte = tl.load(bits + i // 8, mask=i < n, other=0).to(tl.int32)
    scale = tl.load(scales + i // block, mask=i < n, other=0.0)
    up = (byte >> (7 - i % 8).to(tl.int32)) & 1
    tl.store(out + i, tl.where(up == 1, scale, -scale), mask=i < n)


# Encodes one block of numbers in two passes: the scale first, then the codes; see `cpu.encode_int8`.
@kernel
def _encode_int8(g, r, block, scales, codes, wild, n, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Makes scale and codes of one block: a pass for the largest magnitude, and a second one for the codes."""
    begin = tl.program_id(0).to(tl.int64) * block
    end = tl.minimum(begin + block, n)
    # First pass: the scale needs the whole block. The second pass computes the sum r + g again.
    largest = tl.zeros((CHUNK,), tl.float32)
    bad = tl.zeros((CHUNK,), tl.int32)
    for at in range(0, block, CHUNK):
        i = begin + at + tl.arange(0, CHUNK)
        x = tl.abs(tl.load(r + i, mask=i < end, other=0.0) + tl.load(g + i, mask=i < end, other=0.0))
        bad = bad | tl.where(x < INFINITY, 0, 1)
        largest = tl.maximum(largest, x)
    tl.atomic_max(wild, tl.max(bad, 0))
    scale = tl.div_rn(tl.max(largest, 0), 127.0)
    tl.store(scales + tl.program_id(0), scale)
    # Where the scale has no inverse all codes are 0, and the residual keeps the numbers.
    usable = scale >= SUBNORMAL
    inverse = tl.where(usable, tl.div_rn(1.0, tl.where(usable, scale, 1.0)), 0.0)
    for at in range(0, block, CHUNK):
        i = begin + at + tl.arange(0, CHUNK)
        x = tl.load(r + i, mask=i < end, other=0.0) + tl.load(g + i, mask=i < end, other=0.0)
        q = (x * inverse + ROUNDING) - ROUNDING
        tl.store(codes + i, q.to(tl.int8), mask=i < end)
        tl.store(r + i, x - q * scale, mask=i < end)


@kernel
def _decode_int8(scales, codes, block, out, n, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    code = tl.load(codes + i, mask=i < n, other=0).to(tl.float32)
    tl.store(out + i, code * tl.load(scales + i // block, mask=i < n, other=0.0), mask=i < n)


# ---- on behalf of the codecs -------------------------------------------------------------------------------------
CODECS = ("2bit", "1bit", "sign", "int8")
"""The codecs that have kernels here."""


def encode(codec: Any, g: Tensor, r: Tensor) -> Bytes | None:
    """Does what `Codec.encode` does, for a gradient and its residual on the same GPU; the bytes come to the host."""
    import torch

    n, size = len(g), codec.size(len(g))
    flag = -(-size // 4) * 4  # where `wild` lies: behind the bytes, so that one copy brings both
    room = g.new_zeros(flag // 4 + 1).view(torch.uint8)
    data, wild = room[:size], room[flag:].view(torch.int32)
    with _at(g):
        if codec.name in ("2bit", "1bit"):
            loop = _encode_2bit if codec.name == "2bit" else _encode_1bit
            loop[(triton.cdiv(size, CHUNK),)](g, r, codec.threshold, data, wild, n, size, CHUNK=CHUNK)
        else:
            loop = _encode_sign if codec.name == "sign" else _encode_int8
            scales, rest = _parts(codec, data, n)
            blocks = (-(-n // codec.block),)
            chunk = min(CHUNK, triton.next_power_of_2(codec.block))
            loop[blocks](g, r, codec.block, scales, rest, wild, n, CHUNK=chunk, enable_fp_fusion=False)
    came = room.cpu().numpy()
    return None if came[flag:].any() else came[:size]


def decode(codec: Any, data: Bytes, out: Tensor) -> None:
    """Does what `Codec.decode` does, onto a GPU. Raises ValueError when it cannot be of that length."""
    import torch

    n = len(out)
    whole(data, codec.size(n))
    there = torch.tensor(data, device=out.device)
    grid = (triton.cdiv(n, CHUNK),)
    with _at(out):
        if codec.name == "2bit":
            _decode_2bit[grid](there, codec.threshold, out, n, CHUNK=CHUNK)
        elif codec.name == "1bit":
            _decode_sign[grid](out.new_ones(1), there, n, out, n, CHUNK=CHUNK)
        else:
            loop = _decode_sign if codec.name == "sign" else _decode_int8
            loop[grid](*_parts(codec, there, n), codec.block, out, n, CHUNK=CHUNK)


def taken(x: Tensor, parts: Parts) -> Sequence[Floats]:
    """Returns the numbers of these parts, on the host."""
    import torch

    joined = torch.cat([x[part] for part in parts]).cpu().numpy()
    ends = np.cumsum([part.stop - part.start for part in parts])
    return np.split(joined, ends[:-1])


def _parts(codec: Any, data: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Returns views of `data`: the scales, then one byte a number, or a bit."""
    import torch

    scales = 4 * -(-n // codec.block)
    return data[:scales].view(torch.float32), data[scales:].view(torch.int8 if codec.name == "int8" else torch.uint8)


def _at(x: Tensor) -> Any:
    """Returns a context in which the device of `x` is the current one, as kernels go to the thread's current device."""
    import torch

    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()
