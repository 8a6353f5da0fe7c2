"""Reads the mean of a training set's pictures, as Caffe's `compute_image_mean` and Theano-MPI's scripts leave it.

*.binaryproto   a BlobProto: num = 1, channels = 2, height = 3, width = 4, data = 5 (floats), shape = 7
*.npy           an array [c, h, w] or [c]; nothing is unpickled
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.engine.data.formats.protobuf import fields


def read_mean(path: str) -> Tensor:
    """Returns float32 [c, h, w], or [c, 1, 1] for one value a channel. Raises ConfigError."""
    file = Path(path).expanduser()
    try:
        mean = _of_npy(file) if file.suffix == ".npy" else _of_blob(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--mean-file {path}: {error}; give a .binaryproto of Caffe's or a .npy of [c, h, w] or [c]"
        ) from None
    if not np.isfinite(mean).all():
        raise ConfigError(f"--mean-file {path} holds numbers that are not finite")
    return torch.from_numpy(np.array(mean, np.float32, order="C"))


def _of_npy(file: Path) -> np.ndarray:
    mean: np.ndarray = np.load(file, allow_pickle=False)
    if mean.dtype.kind not in "fiu" or mean.ndim not in (1, 3) or not mean.size:
        raise ValueError(f"an array of {mean.dtype} {list(mean.shape)}")
    return mean.reshape(-1, 1, 1) if mean.ndim == 1 else mean


def _of_blob(message: bytes) -> np.ndarray:
    sizes, shape, data = {2: 0, 3: 0, 4: 0}, [], bytearray()
    for number, value in fields(message):
        if number in sizes and isinstance(value, int):
            sizes[number] = value
        elif number == 5 and isinstance(value, bytes):
            data += value  # one number, or packed ones
        elif number == 7 and isinstance(value, bytes):
            shape = _dimensions(value)
    wanted = shape[-3:] if len(shape) >= 3 else list(sizes.values())
    numbers = np.frombuffer(bytes(data), "<f4") if len(data) % 4 == 0 else np.empty(0, np.float32)
    if min(wanted) < 1 or numbers.size != np.prod(wanted, dtype=np.int64):
        raise ValueError(f"a blob of {' x '.join(map(str, wanted))} with {len(data)} bytes")
    return numbers.reshape(wanted)


def _dimensions(message: bytes) -> list[int]:
    """Returns the dimensions of a BlobShape: repeated int64 dim = 1, packed or not."""
    found: list[int] = []
    for number, value in fields(message):
        if number == 1 and isinstance(value, int):
            found.append(value)
        elif number == 1:
            packed = b"".join(b"\x08" + part for part in _varints(value))
            found += [one for _, one in fields(packed) if isinstance(one, int)]
    return found


def _varints(packed: int | bytes) -> list[bytes]:
    """Returns the single numbers of packed ones: each ends with a byte below 128."""
    assert isinstance(packed, bytes)
    parts, start = [], 0
    for at, byte in enumerate(packed):
        if byte < 0x80:
            parts.append(packed[start : at + 1])
            start = at + 1
    return parts
