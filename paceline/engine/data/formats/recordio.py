"""Loads MXNet's RecordIO files of pictures, as `im2rec` writes them: `*train*.rec` and `*val*.rec`, or `*test*.rec`.

A record is the magic number 0xced7230a, a word with 3 bits of kind and 29 of length, then the data, padded to four
bytes. Where data holds the magic number itself, it is cut there into parts (kinds 1 first, 2 middle, 3 last) without
it. (dmlc/recordio.h) The data begin with a header: flag (uint32), label (float32), two numbers (uint64); with a flag
above 0 so many float32 labels follow. Then comes the picture, encoded. (image_recordio.h)

An index NAME.idx beside NAME.rec, lines of key and position, says which records there are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Splits
from paceline.engine.data.formats.decoding import decoded
from paceline.engine.data.formats.pictures import Pixels, gathered, normalised
from paceline.engine.data.formats.two_parts import two_parts

MAGIC = 0xCED7230A
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_LENGTH_BITS = 29
_HEADER = struct.Struct("<IfQQ")
_LABELS_MAX = 1000


def load(directory: str, resize: int = 0, mean: Tensor | None = None) -> Splits:
    """Returns float32 [n, 3, h, w], red first. Raises ConfigError."""
    train, test = two_parts(directory, "a RecordIO file (.rec)", lambda path: path.suffix == ".rec")
    return normalised(read_file(train, resize), read_file(test, resize), mean)


def read_file(path: Path, resize: int) -> Pixels:
    """Returns the pictures of one file, in the order of the index or the file. Raises ConfigError."""
    with path.open("rb") as file:
        index = path.with_suffix(".idx")
        positions = _positions(index, path) if index.is_file() else list(_starts(file, path))
        return gathered(_read(file, positions, path, resize), len(positions), path)


def _read(file: BinaryIO, positions: list[int], path: Path, resize: int) -> Iterator[tuple[np.ndarray, int]]:
    for position in positions:
        where = f"{path} at {position}"
        file.seek(position)
        label, picture = unpacked(record(file, where), where)
        yield decoded(picture, resize, where), label


def record(file: BinaryIO, where: str) -> bytes:
    """Returns the data of the record that begins here. Raises ConfigError."""
    parts: list[bytes] = []
    while True:
        kind, length = _head(file, where)
        if (kind in (_WHOLE, _FIRST)) != (not parts):
            raise ConfigError(f"{where}: a record begins or goes on where it must not: get the file again")
        data = file.read(length)
        if len(data) < length:
            raise ConfigError(f"{where}: it ends within a record: get the file again")
        file.seek(-length % 4, 1)
        parts.append(data)
        if kind in (_WHOLE, _LAST):
            return struct.pack("<I", MAGIC).join(parts)


def _head(file: BinaryIO, where: str) -> tuple[int, int]:
    """Returns kind and length of the next part."""
    head = file.read(8)
    if len(head) < 8 or struct.unpack("<I", head[:4])[0] != MAGIC:
        raise ConfigError(f"{where}: no record of RecordIO begins there: get the file and its .idx again")
    (word,) = struct.unpack("<I", head[4:])
    return word >> _LENGTH_BITS, word & ((1 << _LENGTH_BITS) - 1)


def unpacked(data: bytes, where: str) -> tuple[int, bytes]:
    """Returns the label, a whole number, and the encoded picture. Raises ConfigError."""
    if len(data) < _HEADER.size:
        raise ConfigError(f"{where}: a record of {len(data)} bytes has no header")
    flag, label, _, _ = _HEADER.unpack_from(data)
    start = _HEADER.size
    if flag:
        if flag > _LABELS_MAX or len(data) < start + 4 * flag:
            raise ConfigError(f"{where}: a record that announces {flag} labels")
        (label,) = struct.unpack_from("<f", data, start)
        start += 4 * flag
    if flag > 1 or label != int(label):
        raise ConfigError(f"{where}: {flag or 1} labels, the first of them {label:g}: --data takes one whole number")
    return int(label), data[start:]


def _starts(file: BinaryIO, path: Path) -> Iterator[int]:
    """Returns where records begin, by reading the heads of all parts."""
    size, at = path.stat().st_size, 0
    while at < size:
        file.seek(at)
        kind, length = _head(file, f"{path} at {at}")
        if kind in (_WHOLE, _FIRST):
            yield at
        at += 8 + length + -length % 4


def _positions(index: Path, path: Path) -> list[int]:
    size = path.stat().st_size
    try:
        found = [int(line.split("\t")[1]) for line in index.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (ValueError, IndexError, UnicodeDecodeError):
        raise ConfigError(f"{index}: lines should be a key, a tab and a position") from None
    if any(not 0 <= position < size for position in found):
        raise ConfigError(f"{index} has positions beyond the end of {path.name}: it belongs to another file")
    return found
