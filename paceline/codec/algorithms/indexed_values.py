"""Codecs that send some of the numbers share this format: their places, then their values."""

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
    """Takes the k largest |r| out of r, which is zero there from now on. Returns their places and values as bytes.

    The result is None where r has infinite numbers or NaN.
    """
    from paceline.codec.kernels import cpu

    data = np.empty(8 * k, np.uint8)
    where, values = _parts(data)
    return data if cpu.take_largest(r, r.view(np.int32), k, where, values) else None


def placed(data: Bytes, out: Floats) -> None:
    """Writes the values at their places into `out`, and zeros elsewhere.

    Raises ValueError for a place outside `out`, or for more places than it has.
    """
    from paceline.codec.kernels import cpu

    if len(data) % 8 or len(data) > 8 * len(out):
        raise ValueError(f"{len(data)} bytes are no places and values of {len(out)} numbers")
    if not cpu.place(*_parts(data), out):
        raise ValueError(f"a place outside {len(out)} numbers")


def places(data: Bytes) -> NDArray[np.uint32]:
    """Returns the places of the numbers that are sent: the first half of the bytes, as uint32."""
    return data[: len(data) // 2].view(np.uint32)


def _parts(data: Bytes) -> tuple[NDArray[np.uint32], Floats]:
    """Returns all places, then all values."""
    return places(data), data[len(data) // 2 :].view(np.float32)
