"""Small tensors within a vector travel as they are: biases and norms are few numbers, and each of them counts.

bytes of the codec | the numbers of each part, float32 | of each part: where it begins, its length, uint32
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from paceline.codec.base import Bytes, Floats

Parts = tuple[slice, ...]
PART_BYTES = 8


def parts_of(tensors: Sequence[int], slices: Sequence[slice], below: int) -> dict[int, Parts]:
    """Returns for each slice of a vector of such tensors where it has tensors of fewer than `below` numbers."""
    edges = [0, *itertools.accumulate(tensors)]
    small = [(a, b) for a, b in itertools.pairwise(edges) if 0 < b - a < below]
    found: dict[int, Parts] = {}
    for number, part in enumerate(slices):
        cuts = [(max(a, part.start), min(b, part.stop)) for a, b in small]
        inside = _joined([(a - part.start, b - part.start) for a, b in cuts if a < b])
        if inside:
            found[number] = tuple(slice(a, b) for a, b in inside)
    return found


def _joined(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merges runs that follow one another."""
    joined: list[tuple[int, int]] = []
    for a, b in runs:
        if joined and joined[-1][1] == a:
            joined[-1] = joined[-1][0], b
        else:
            joined.append((a, b))
    return joined


def more_bytes(parts: Parts) -> int:
    """Returns the bytes by which small tensors make an encoded vector longer."""
    return sum(4 * (part.stop - part.start) + PART_BYTES for part in parts)


def joined(data: Bytes, numbers: Sequence[Floats], parts: Parts) -> Bytes:
    """Returns what the codec made of a vector, and the numbers of its parts."""
    table = np.array([(part.start, part.stop - part.start) for part in parts], np.uint32)
    return np.concatenate([data, *(part.view(np.uint8) for part in numbers), table.reshape(-1).view(np.uint8)])


def taken_apart(data: Bytes, count: int, length: int) -> tuple[Bytes, dict[tuple[int, int], Floats]]:
    """Returns what the codec made, and the numbers of `count` parts by their places.

    Raises ValueError for parts that are not there, or do not lie within `length` numbers.
    """
    end = len(data) - PART_BYTES * count
    if end < 0:
        raise ValueError(f"{len(data)} bytes have no room for {count} exact parts")
    table = np.frombuffer(data[end:].tobytes(), np.uint32).reshape(-1, 2).tolist()
    total = 4 * sum(n for _, n in table)
    if total > end or any(start + n > length for start, n in table):
        raise ValueError(f"exact parts at {table[:4]} do not fit")
    numbers = np.frombuffer(data[end - total : end].tobytes(), np.float32)
    return data[: end - total], dict(_places(table, numbers))


def _places(table: Sequence[Sequence[int]], numbers: Floats) -> Iterator[tuple[tuple[int, int], Floats]]:
    """Yields each small tensor's place in the vector, with its numbers."""
    at = 0
    for start, n in table:
        yield (start, start + n), numbers[at : at + n]
        at += n
