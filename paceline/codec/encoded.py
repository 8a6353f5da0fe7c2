"""Represents a vector that travels as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.codec.base import BYTES_MAX_PER_NUMBER
from paceline.core.errors import ProtocolError

WHOLE = "float32"
"""Stands in place of a codec's name: the bytes are the numbers themselves, which begin a row."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Holds `length` numbers as the codec of that name made `data` of them: anything with the buffer protocol, of
    bytes.

    row: which of the sender's rows of vectors the receiver has to remember this one in; 0: none. base: 0 for the vector
    itself, which begins the row anew; n for the difference to its n-th one. exact: so many parts of it are as they
    were, at the end (`paceline.codec.small_tensors`).
    """

    codec: str
    length: int
    data: Any
    row: int = 0
    base: int = 0
    exact: int = 0

    def __len__(self) -> int:
        return self.length

    @property
    def nbytes(self) -> int:
        """Returns the bytes that travel, not those of the vector."""
        return len(self.data)


def check_size(length: int, nbytes: int) -> None:
    """Raises ProtocolError for more bytes than any codec makes of `length` numbers."""
    if not 0 <= nbytes <= BYTES_MAX_PER_NUMBER * (length + 8):
        raise ProtocolError(f"{nbytes} bytes for an encoded vector of {length} numbers")
