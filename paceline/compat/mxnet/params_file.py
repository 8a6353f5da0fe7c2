"""Reads MXNet's `.params` files: what `save_checkpoint`, `nd.save` and Gluon's `save_parameters` write.

    file     0x112 (uint64), 0 (uint64), arrays, names
    arrays   count (uint64), then each array
    names    count (uint64), then each name: bytes (uint64), ASCII; none at all where a list was saved
    array    0xF993fac9, or 0xF993faca for np shapes (uint32), storage (int32), shape, device (2 of int32),
             type (int32), numbers
             0xF993fac8 (uint32), shape, device, type, numbers                         before MXNet 1.0
             dimensions (uint32), each of them (uint32), device, type, numbers         before MXNet 0.12
    shape    dimensions (int32), each of them (int64)

All is little-endian. An array without dimensions is empty and ends there, but with np shapes it is one number, and -1
dimensions are empty. (src/ndarray/ndarray.cc: NDArray::Save, NDArray::Load, NDArray::LegacyLoad)
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.core.errors import ConfigError

LIST_MAGIC = 0x112
V1_MAGIC, V2_MAGIC, V3_MAGIC = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
DENSE, STORAGES = 0, {1: "row_sparse", 2: "csr"}
TYPES = {
    0: torch.float32,
    1: torch.float64,
    2: torch.float16,
    3: torch.uint8,
    4: torch.int32,
    5: torch.int8,
    6: torch.int64,
    7: torch.bool,
    12: torch.bfloat16,
}
"""By MXNet's number of a type (mshadow/base.h)."""
DIMENSIONS_MAX = 32
PREFIXES = ("arg:", "aux:")
"""`save_checkpoint` puts them before the names of parameters, and of states such as a batch norm's means."""


def read_params(path: str | Path) -> dict[str, Tensor]:
    """Returns the arrays of a `.params` file by name, without `arg:` and `aux:`; by place, "0" on, where it has no
    names.

    Shapes and types are the file's. Raises ConfigError for a file that cannot be read, or has sparse arrays.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    file = _Cursor(memoryview(content), path)
    if len(content) < 16 or file.number("Q") != LIST_MAGIC:
        raise ConfigError(f"{path} is no .params file of MXNet: it does not begin with 0x112")
    file.number("Q")
    arrays = [file.array() for _ in range(file.count(least=4))]
    names = [file.name() for _ in range(file.count(least=8))] or [str(place) for place in range(len(arrays))]
    if len(names) != len(arrays):
        raise ConfigError(f"{path} has {len(arrays)} arrays and {len(names)} names")
    named = {_plain(name): array for name, array in zip(names, arrays, strict=True)}
    if len(named) != len(arrays):
        raise ConfigError(f"{path} has two arrays of one name")
    return named


def _plain(name: str) -> str:
    """Returns a name without what `save_checkpoint` puts before it."""
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)


@dataclass(slots=True)
class _Cursor:
    """Reads a file from its beginning on. All methods raise ConfigError where it ends too early."""

    content: memoryview
    path: str | Path
    at: int = 0

    def bytes(self, count: int) -> memoryview:
        """Returns the next so many bytes."""
        if count > len(self.content) - self.at:
            raise ConfigError(f"{self.path} ends early: it was cut off, or is no .params file of MXNet")
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, kind: str) -> int:
        """Returns the next number, of a kind of `struct`."""
        one: Any = struct.Struct(f"<{kind}")
        return int(one.unpack(self.bytes(one.size))[0])

    def count(self, least: int) -> int:
        """Returns how many things follow, each of which has at least so many bytes."""
        count = self.number("Q")
        if count > (len(self.content) - self.at) // least:
            raise ConfigError(f"{self.path} ends early: it was cut off, or is no .params file of MXNet")
        return count

    def name(self) -> str:
        """Returns the next name."""
        return bytes(self.bytes(self.number("Q"))).decode(errors="replace")

    def shape(self, dimensions: int, kind: str) -> list[int]:
        """Returns so many numbers. Raises ConfigError for a shape that no array has."""
        if dimensions > DIMENSIONS_MAX:
            raise ConfigError(f"{self.path}: an array of {dimensions} dimensions; the file is damaged")
        shape = [self.number(kind) for _ in range(dimensions)]
        if min(shape, default=0) < 0:
            raise ConfigError(f"{self.path}: an array of {shape}; its size was not known when it was saved")
        return shape

    def array(self) -> Tensor:
        """Returns the next array. Raises ConfigError for a sparse one."""
        magic = self.number("I")
        if magic in (V2_MAGIC, V3_MAGIC):
            storage = self.number("i")
            if storage != DENSE:
                kind = STORAGES.get(storage, f"of storage {storage}")
                raise ConfigError(f"{self.path} has arrays that are {kind}: save them by tostype('default') in MXNet")
        dimensions, kind = (self.number("i"), "q") if magic in (V1_MAGIC, V2_MAGIC, V3_MAGIC) else (magic, "I")
        if dimensions < 0 or (dimensions == 0 and magic != V3_MAGIC):
            return torch.empty(0)
        shape = self.shape(dimensions, kind)
        self.bytes(8)  # the device, which need not be here
        number = self.number("i")
        if number not in TYPES:
            raise ConfigError(f"{self.path}: an array of MXNet's type {number}, which is none of {sorted(TYPES)}")
        dtype = TYPES[number]
        numbers = bytearray(self.bytes(math.prod(shape) * dtype.itemsize))
        return (torch.frombuffer(numbers, dtype=dtype) if numbers else torch.empty(0, dtype=dtype)).reshape(shape)
