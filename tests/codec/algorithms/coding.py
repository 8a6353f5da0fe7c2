"""Codecs of tests: a gradient by hand, and what a codec makes of it."""

from __future__ import annotations

import numpy as np

from paceline.codec import Codec, ResidualMemory


def decoded(codec: Codec, data: np.ndarray, length: int) -> np.ndarray:
    out = np.full(length, np.nan, np.float32)
    codec.decode(data, out)
    return out


def encoded(codec: Codec, g: np.ndarray, memory: ResidualMemory | None = None) -> np.ndarray:
    data = codec.encode(g, memory)
    assert data is not None
    return data
