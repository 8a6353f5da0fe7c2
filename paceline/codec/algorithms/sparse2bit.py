"""Sends the largest numbers of each chunk in two bits, and keeps a residual that may decay: SparseLoCo's compression.

    r <- b r + g
    of each chunk of 4096 numbers of r: the k largest |r| but no zeros, each as its sign and one of two magnitudes
    r <- r - what was sent

k is `ratio` of a chunk, 64 by default. high is the mean of those of the k that lie above their mean, low the mean of
the others, both rounded to bfloat16. A chunk takes 2 bytes for each place, a quarter of one for each value, and 4 for
the magnitudes: 148 bytes where it had 16 KiB, 110 times fewer. With `decay` b below 1 what is left out fades, and what
comes again and again adds up: over deltas of local steps this acts as a momentum (scheme `sparseloco`). With b = 1
nothing fades. The paper's abstract does not say how two bits stand for a number; the two magnitudes are our choice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, codec, whole
from paceline.core.scheme import Paper, parameter

CHUNK = 4096


@codec(
    "sparse2bit",
    summary="the largest of each chunk in 2 bits, and a residual: 110 times smaller",
    paper=Paper(
        key="sarfi2025sparseloco",
        authors="Sarfi, Amir and Therien, Benjamin and Lidin, Joel and Belilovsky, Eugene",
        title="Communication Efficient LLM Pre-training with SparseLoCo",
        venue="arXiv 2508.15706",
        year=2025,
        url="https://arxiv.org/abs/2508.15706",
    ),
)
class SparseTwoBit(Codec):
    ratio: float = parameter(0.015625, "share of the numbers that is sent", low=1e-6, high=0.5)
    decay: float = parameter(1.0, "b: factor on the residual before each vector", low=0.0, high=1.0)

    def size(self, length: int, nth: int = 0) -> int:
        return sum(rows * _row_bytes(k) for rows, _, k in self._blocks(length))

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        left = memory.left if memory else np.zeros(len(g), np.float32)
        if self.decay != 1:
            left *= np.float32(self.decay)
        left += g
        if not np.isfinite(left).all():
            return None
        parts, at = [np.empty(0, np.uint8)], 0
        for rows, width, k in self._blocks(len(g)):
            block = left[at : at + rows * width].reshape(rows, width)
            parts += [np.ascontiguousarray(part).view(np.uint8).ravel() for part in _taken(block, k)]
            at += rows * width
        return np.concatenate(parts)

    def decode(self, data: Bytes, out: Floats) -> None:
        whole(data, self.size(len(out)))
        out[:] = 0
        at = read = 0
        for rows, width, k in self._blocks(len(out)):
            block = out[at : at + rows * width].reshape(rows, width)
            part = data[read : read + rows * _row_bytes(k)]
            places = part[: 2 * rows * k].view(np.uint16).reshape(rows, k).astype(np.intp)
            codes = part[2 * rows * k : len(part) - 4 * rows].reshape(rows, -1)
            levels = part[len(part) - 4 * rows :].copy().view(np.uint16).reshape(rows, 2)
            if places.size and int(places.max()) >= width:
                raise ValueError(f"a place outside {width} numbers")
            np.put_along_axis(block, places, _values(codes, levels, k), axis=1)
            at, read = at + rows * width, read + len(part)

    def _blocks(self, length: int) -> list[tuple[int, int, int]]:
        """Returns rows, width, and k of the whole chunks together, and of what is left behind them."""
        rows, rest = divmod(length, CHUNK)
        blocks = [(rows, CHUNK), (1, rest)]
        return [(n, width, min(width, max(1, math.ceil(self.ratio * width)))) for n, width in blocks if n and width]


def _row_bytes(k: int) -> int:
    return 2 * k + -(-k // 4) + 4


def _taken(block: NDArray[np.float32], k: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Takes what is sent out of `block`, row by row. Returns places, codes and the two magnitudes of each row."""
    width = block.shape[1]
    places = np.argpartition(np.abs(block), width - k, axis=1)[:, width - k :]
    sizes = np.abs(np.take_along_axis(block, places, axis=1))
    # No code stands for zero: rows of embeddings that no batch has used would move. The largest goes in its place.
    largest = np.take_along_axis(places, sizes.argmax(axis=1, keepdims=True), axis=1)
    places = np.sort(np.where(sizes > 0, places, largest), axis=1)
    once = np.diff(places, axis=1, prepend=-1) > 0
    chosen = np.take_along_axis(block, places, axis=1)
    sizes = np.abs(chosen)
    high = sizes > _mean_where(sizes, once)[:, None]
    levels = _to_bfloat16(np.stack([_mean_where(sizes, once & ~high), _mean_where(sizes, once & high)], axis=1))
    bits = np.stack([chosen < 0, high], axis=2).reshape(len(block), 2 * k)
    codes = np.packbits(bits, axis=1)
    np.put_along_axis(block, places, chosen - _values(codes, levels, k), axis=1)
    return places.astype(np.uint16), codes, levels


def _mean_where(sizes: NDArray[np.float32], where: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Returns the mean of each row over `where`; 0 for a row without any."""
    total, count = (sizes * where).sum(axis=1), where.sum(axis=1)
    mean: NDArray[np.float32] = (total / np.maximum(count, 1)).astype(np.float32)
    return mean


def _to_bfloat16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Returns the upper halves of the nearest numbers that have only those; `x` is not negative, and finite."""
    return ((x.view(np.uint32) + np.uint32(0x7FFF)) >> np.uint32(16)).astype(np.uint16)


def _values(codes: Bytes, levels: NDArray[np.uint16], k: int) -> NDArray[np.float32]:
    """Returns the k numbers that the codes of each row stand for."""
    bits = np.unpackbits(codes, axis=1)[:, : 2 * k].reshape(len(codes), k, 2)
    numbers = (levels.astype(np.uint32) << np.uint32(16)).view(np.float32)
    sizes = np.where(bits[:, :, 1], numbers[:, 1:], numbers[:, :1])
    return np.where(bits[:, :, 0], -sizes, sizes).astype(np.float32)
