"""What codecs share that send some of the numbers: places and values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from paceline.codec.base import Bytes, Floats
from paceline.core.scheme import Paper

PAPER = Paper(
    key="stich2018sparsified",
    authors="Stich, Sebastian U. and Cordonnier, Jean-Baptiste and Jaggi, Martin",
    title="Sparsified SGD with Memory",
    venue="Advances in Neural Information Processing Systems (NeurIPS)",
    year=2018,
    url="https://arxiv.org/abs/1809.07599",
)


def chosen(ratio: float, length: int) -> int:
    """Returns how many of `length` numbers are sent."""
    return min(length, max(1, math.ceil(ratio * length)))


def largest(r: Floats, k: int) -> Bytes | None:
    """Places and values of the k largest |r|, which are zero in r from now on. None for infinite numbers and NaN."""
    from paceline.codec.kernels import cpu

    data = np.empty(8 * k, np.uint8)
    where, values = _parts(data)
    return data if cpu.take_largest(r, r.view(np.int32), k, where, values) else None


def placed(data: Bytes, out: Floats) -> None:
    """Raises ValueError for a place outside `out`, or for more places than it has."""
    from paceline.codec.kernels import cpu

    if len(data) % 8 or len(data) > 8 * len(out):
        raise ValueError(f"{len(data)} bytes are no places and values of {len(out)} numbers")
    if not cpu.place(*_parts(data), out):
        raise ValueError(f"a place outside {len(out)} numbers")


def places(data: Bytes) -> NDArray[np.uint32]:
    return data[: len(data) // 2].view(np.uint32)


def _parts(data: Bytes) -> tuple[NDArray[np.uint32], Floats]:
    """Returns all places, then all values."""
    return places(data), data[len(data) // 2 :].view(np.float32)
