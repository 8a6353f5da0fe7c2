"""Compiles the loops of the codecs by numba: one pass over the gradient and the residual where the arithmetic allows.

Import it when a codec first encodes or decodes, never before: numba takes a good part of a second. Machine code is kept
on disk (`cache=True`). All loops release the GIL, so that other threads run. Each works through blocks that stay in the
first cache, a simple loop at a time, so that the compiler turns every loop into vector instructions.

g: what is to be sent, r: the residual, both float32 of one length. An encoder adds g to r, takes what is sent off r,
and returns whether all numbers were finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

BLOCK = 2048
INFINITE = 0x7F800000
ABSOLUTE = 0x7FFFFFFF
BIN_BITS = 19  # the lower bits of the 31 of a magnitude, which the histogram of `take_largest` does not tell apart
DIGIT_BITS = 10  # two digits cover those 19 bits, and share one of them
DIGIT = (1 << DIGIT_BITS) - 1
F = np.float32


def kernel(loop: Callable[..., Any]) -> Any:
    """Compiles `loop` when it is called first. Where no folder may be written, it is compiled anew in every run."""
    try:
        return numba.njit(nogil=True, cache=True, error_model="numpy")(loop)
    except RuntimeError:  # there is nowhere to keep machine code, neither beside the source nor in the user's cache
        return numba.njit(nogil=True, error_model="numpy")(loop)


# ---- thresholds: MXNet's 2bit and 1bit ---------------------------------------------------------------------------
@kernel
def encode_2bit(g, r, t, out):  # type: ignore[no-untyped-def]
    """Writes 11 for r >= t, 10 for r <= -t, 00 for what lies between; four to a byte, the first in the highest bits."""
    codes, zero, finite = np.zeros(BLOCK, np.uint8), F(0), True
    for begin in range(0, len(g), BLOCK):
        n = min(BLOCK, len(g) - begin)
        gs, rs = g[begin : begin + n], r[begin : begin + n]
        wild = np.uint8(0)
        for i in range(n):
            x = rs[i] + gs[i]
            up, down = x >= t, x <= -t
            codes[i] = np.uint8(3) if up else (np.uint8(2) if down else np.uint8(0))
            rs[i] = x - (t if up else (-t if down else zero))
            wild |= np.uint8(0) if abs(x) < np.inf else np.uint8(1)
        finite = finite and not wild
        # The last byte of a vector may have fewer than four numbers.
        codes[n : n + 3] = 0
        o = out[begin // 4 : begin // 4 + (n + 3) // 4]
        for i in range(len(o)):
            o[i] = codes[4 * i] << 6 | codes[4 * i + 1] << 4 | codes[4 * i + 2] << 2 | codes[4 * i + 3]
    return finite


@kernel
def decode_2bit(data, t, out):  # type: ignore[no-untyped-def]
    """Writes t, -t or 0 for each code, by a table of the four numbers of each byte."""
    table = np.empty((256, 4), np.float32)
    for byte in range(256):
        for j in range(4):
            code = byte >> (6 - 2 * j) & 3
            table[byte, j] = t if code == 3 else (-t if code == 2 else F(0))
    whole = len(out) // 4
    for i in range(whole):
        row = table[data[i]]
        for j in range(4):
            out[4 * i + j] = row[j]
    for i in range(4 * whole, len(out)):
        out[i] = table[data[whole], i - 4 * whole]


@kernel
def encode_1bit(g, r, t, out):  # type: ignore[no-untyped-def]
    """Writes 1 for r > t and 0 for the rest, which stand for +1 and -1; eight to a byte, the first
    in the highest bit.
    """
    codes, one, finite = np.zeros(BLOCK, np.uint8), F(1), True
    for begin in range(0, len(g), BLOCK):
        n = min(BLOCK, len(g) - begin)
        gs, rs = g[begin : begin + n], r[begin : begin + n]
        wild = np.uint8(0)
        for i in range(n):
            x = rs[i] + gs[i]
            codes[i] = np.uint8(1) if x > t else np.uint8(0)
            rs[i] = x - (one if x > t else -one)
            wild |= np.uint8(0) if abs(x) < np.inf else np.uint8(1)
        finite = finite and not wild
        _pack_bits(codes, n, out[begin // 8 : begin // 8 + (n + 7) // 8])
    return finite


@kernel
def _pack_bits(codes, n, out):  # type: ignore[no-untyped-def]
    """Writes the first `n` of `codes`, each 0 or 1, as bits, the highest first; the last byte is filled with zeros."""
    codes[n : n + 7] = 0
    for i in range(len(out)):
        byte = np.uint8(0)
        for j in range(8):
            byte |= codes[8 * i + j] << np.uint8(7 - j)
        out[i] = byte


# ---- scales: sign, int8 ------------------------------------------------------------------------------------------
@kernel
def encode_sign(g, r, block, scales, bits):  # type: ignore[no-untyped-def]
    """Writes a bit for each number, 1 for r >= 0, and for each `block` of them the mean of |r|; `block` is a multiple
    of 8.
    """
    codes, finite = np.zeros(BLOCK, np.uint8), True
    for b in range(len(scales)):
        begin, end = b * block, min(len(g), (b + 1) * block)
        total = 0.0
        for at in range(begin, end, BLOCK):
            gs, rs = g[at : min(end, at + BLOCK)], r[at : min(end, at + BLOCK)]
            for i in range(len(gs)):
                rs[i] += gs[i]
            total += _sum_of_magnitudes(rs)
        # The scale is known only after the whole block, so a second loop over it follows; it is still in the cache.
        scale = scales[b] = F(total / (end - begin))
        finite = finite and bool(scale < np.inf)
        for at in range(begin, end, BLOCK):
            rs = r[at : min(end, at + BLOCK)]
            for i in range(len(rs)):
                codes[i] = np.uint8(1) if rs[i] >= 0 else np.uint8(0)
                rs[i] -= scale if rs[i] >= 0 else -scale
            _pack_bits(codes, len(rs), bits[at // 8 : at // 8 + (len(rs) + 7) // 8])
    return finite


@kernel
def _sum_of_magnitudes(r):  # type: ignore[no-untyped-def]
    """Returns the sum in 16 partial sums: the compiler keeps the order of additions, so one sum
    would not be vectorised.
    """
    strands = np.zeros(16, np.float64)
    whole = len(r) // 16 * 16
    for i in range(0, whole, 16):
        for j in range(16):
            strands[j] += abs(r[i + j])
    for i in range(whole, len(r)):
        strands[0] += abs(r[i])
    return strands.sum()


@kernel
def decode_sign(scales, bits, block, out):  # type: ignore[no-untyped-def]
    """Writes the scale of its block for each 1 and minus the scale for each 0."""
    table = np.empty((256, 8), np.float32)
    for byte in range(256):
        for j in range(8):
            table[byte, j] = F(1) if byte >> (7 - j) & 1 else F(-1)
    for b in range(len(scales)):
        scale, begin, end = scales[b], b * block, min(len(out), (b + 1) * block)
        whole = begin + (end - begin) // 8 * 8
        for at in range(begin, whole, 8):
            row = table[bits[at // 8]]
            for j in range(8):
                out[at + j] = scale * row[j]
        for i in range(whole, end):
            out[i] = scale * table[bits[whole // 8], i - whole]


@kernel
def encode_int8(g, r, block, scales, codes):  # type: ignore[no-untyped-def]
    """Scales each block so that its largest |r| is 127; every number becomes the nearest whole number of scales."""
    finite = True
    for b in range(len(scales)):
        begin, end = b * block, min(len(g), (b + 1) * block)
        gs, rs, cs = g[begin:end], r[begin:end], codes[begin:end]
        for i in range(len(gs)):
            rs[i] += gs[i]
        # Compared as integers, so that NaN is the largest; comparisons of floats would lose it.
        largest = _largest_magnitude(rs.view(np.int32))
        finite = finite and bool(largest < np.inf)
        scale = scales[b] = largest / F(127)
        inverse = F(1) / scale if scale >= F(1.2e-38) else F(0)  # of a subnormal number there may be no inverse
        for i in range(len(rs)):
            q = np.rint(rs[i] * inverse)
            cs[i] = np.int8(np.int32(q))
            rs[i] -= q * scale
    return finite


@kernel
def _largest_magnitude(bits):  # type: ignore[no-untyped-def]
    """Returns the largest |r|, compared as bits, which have the same order; NaN counts as infinity."""
    largest = np.zeros(1, np.int32)
    for i in range(len(bits)):
        largest[0] = max(largest[0], bits[i] & np.int32(ABSOLUTE))
    return largest.view(np.float32)[0] if largest[0] <= INFINITE else F(np.inf)


@kernel
def decode_int8(scales, codes, block, out):  # type: ignore[no-untyped-def]
    """Writes code times scale for each number, block by block."""
    for b in range(len(scales)):
        scale, begin, end = scales[b], b * block, min(len(out), (b + 1) * block)
        cs, os = codes[begin:end], out[begin:end]
        for i in range(len(cs)):
            os[i] = F(cs[i]) * scale


# ---- choices: topk, dgc, randomk -----------------------------------------------------------------------------------
@kernel
def add(g, r):  # type: ignore[no-untyped-def]
    """Adds g to r in place."""
    for i in range(len(g)):
        r[i] += g[i]


@kernel
def add_with_momentum(g, m, u, r):  # type: ignore[no-untyped-def]
    """Updates u <- m u + g;  r <- r + u."""
    for i in range(len(g)):
        u[i] = m * u[i] + g[i]
        r[i] += u[i]


@kernel
def take_largest(r, bits, k, where, values):  # type: ignore[no-untyped-def]
    """Takes the k largest |r|, of equal ones the first, in the order of their places; they are zero in r afterwards.

    `bits` is r as int32. The magnitudes go into bins by their leading bits; only the bin that the limit falls into is
    looked at closely. So it needs three passes over r, whatever k is.
    """
    counts = np.zeros(1 << (31 - BIN_BITS), np.int64)
    for i in range(len(bits)):
        counts[(bits[i] & ABSOLUTE) >> BIN_BITS] += 1
    bin, wanted = len(counts) - 1, k
    while counts[bin] < wanted:
        wanted -= counts[bin]
        bin -= 1
    close = np.empty(counts[bin], np.int32)
    n, largest = 0, np.int32(0)
    for i in range(len(bits)):
        b = bits[i] & np.int32(ABSOLUTE)
        largest = max(largest, b)
        if b >> BIN_BITS == bin:
            close[n] = b
            n += 1
    for shift in (DIGIT_BITS - 1, 0):  # digit by digit; to compile `np.partition` takes seconds
        counts[: 1 << DIGIT_BITS] = 0
        for i in range(n):
            counts[close[i] >> shift & DIGIT] += 1
        digit = DIGIT
        while counts[digit] < wanted:
            wanted -= counts[digit]
            digit -= 1
        left = 0
        for i in range(n):
            if close[i] >> shift & DIGIT == digit:
                close[left] = close[i]
                left += 1
        n = left
    limit = close[0]  # and `wanted` of those that are equal to it
    found = 0
    for i in range(len(bits)):
        b = bits[i] & np.int32(ABSOLUTE)
        if b >= limit:
            if b == limit:
                wanted -= 1
                if wanted < 0:
                    continue
            where[found], values[found] = i, r[i]
            r[i] = 0
            found += 1
    return largest < INFINITE


@kernel
def place(where, values, out):  # type: ignore[no-untyped-def]
    """Writes `values` at `where`, and zeros elsewhere. Returns False for a place outside `out`."""
    for i in range(len(where)):  # checked before anything is written
        if where[i] >= len(out):
            return False
    out[:] = 0
    for i in range(len(where)):
        out[where[i]] = values[i]
    return True


@kernel
def draw(seed, length, where):  # type: ignore[no-untyped-def]
    """Draws one place at random in each of len(where) equal stretches of `length` (splitmix64): all
    different, in order.
    """
    state, k = np.uint64(seed), len(where)
    for i in range(k):
        begin, end = length * i // k, length * (i + 1) // k
        state += np.uint64(0x9E3779B97F4A7C15)
        z = state
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        where[i] = begin + np.int64((z >> np.uint64(32)) * np.uint64(end - begin) >> np.uint64(32))


@kernel
def take(r, where, values):  # type: ignore[no-untyped-def]
    """Takes the values of r at `where`; r is zero there afterwards."""
    for i in range(len(where)):
        values[i] = r[where[i]]
        r[where[i]] = 0


@kernel
def clear(where, r):  # type: ignore[no-untyped-def]
    """Sets r to zero at the places `where`."""
    for i in range(len(where)):
        r[where[i]] = 0
