"""Loads Caffe's LMDB databases: each value is a Datum, as `convert_imageset` and `convert_cifar_data` write it.

    message Datum { int32 channels = 1; int32 height = 2; int32 width = 3; bytes data = 4; int32 label = 5;
                    repeated float float_data = 6; bool encoded = 7; }

`data` is [channels, height, width]; colours are blue, green, red, as OpenCV has them, and stay so: a mean file of
Caffe's has the same order. Encoded pictures are decoded to it. (caffe.proto of BVLC/caffe)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Splits
from paceline.engine.data.formats.decoding import decoded
from paceline.engine.data.formats.pictures import Pixels, gathered, normalised
from paceline.engine.data.formats.protobuf import fields
from paceline.engine.data.formats.two_parts import two_parts

SIDE_MAX = 16_384


@dataclass(slots=True, kw_only=True)
class Datum:
    """One picture of Caffe's; the names are those of caffe.proto."""

    channels: int = 0
    height: int = 0
    width: int = 0
    data: bytes = b""
    label: int = 0
    float_data: bytes = b""
    encoded: bool = False


NAMES = {1: "channels", 2: "height", 3: "width", 4: "data", 5: "label", 7: "encoded"}


def load(directory: str, resize: int = 0, mean: Tensor | None = None) -> Splits:
    """Returns float32 [n, c, h, w]. Raises ConfigError."""
    train, test = two_parts(directory, "an LMDB (a folder with data.mdb)", lambda path: (path / "data.mdb").is_file())
    return normalised(read_database(train, resize), read_database(test, resize), mean)


def read_database(folder: Path, resize: int) -> Pixels:
    """Returns the pictures in the order of their keys. Raises ConfigError."""
    try:
        import lmdb
    except ImportError:
        raise ConfigError("--data lmdb needs the package lmdb: pip install 'paceline[lmdb]'") from None
    try:
        with lmdb.open(str(folder), readonly=True, lock=False) as database, database.begin() as reader:
            count = reader.stat()["entries"]
            return gathered(_read(reader, folder, resize), count, folder)
    except lmdb.Error as error:
        raise ConfigError(f"cannot read the LMDB {folder} ({error})") from None


def _read(reader: Any, folder: Path, resize: int) -> Iterator[tuple[np.ndarray, int]]:
    for key, value in reader.cursor():
        where = f"{folder}, key {bytes(key)[:40]!r}"
        datum = parsed(bytes(value), where)
        yield pixels_of(datum, resize, where), datum.label


def parsed(message: bytes, where: str) -> Datum:
    """Returns the Datum that the bytes hold. Raises ConfigError, which names `where`, if they hold none."""
    datum = Datum()
    try:
        for number, value in fields(message):
            if number == 6 and isinstance(value, bytes):
                datum.float_data += value  # one number, or packed ones
            elif number in NAMES:
                setattr(datum, NAMES[number], bool(value) if number == 7 else value)
    except ValueError as error:
        raise ConfigError(f"{where}: no Datum of Caffe's ({error})") from None
    sizes = (datum.channels, datum.height, datum.width, datum.label)
    if not all(isinstance(size, int) for size in sizes) or not isinstance(datum.data, bytes):
        raise ConfigError(f"{where}: no Datum of Caffe's (a field has another type)")
    return datum


def pixels_of(datum: Datum, resize: int, where: str) -> np.ndarray:
    """Returns uint8 [c, h, w], or float32 where the Datum has floats. Raises ConfigError."""
    if datum.encoded:
        return np.ascontiguousarray(decoded(datum.data, resize, where)[::-1])
    shape = (datum.channels, datum.height, datum.width)
    if not all(1 <= size <= SIDE_MAX for size in shape):
        raise ConfigError(f"{where}: a Datum of {' x '.join(map(str, shape))}")
    numbers = np.frombuffer(datum.data or datum.float_data, np.uint8 if datum.data else "<f4")
    if numbers.size != shape[0] * shape[1] * shape[2]:
        raise ConfigError(f"{where}: a Datum of {' x '.join(map(str, shape))} with {numbers.size} values")
    return numbers.reshape(shape)
