"""Reads the wire format of protocol buffers: what Caffe's Datum and BlobProto need of it.

A message is a sequence of fields, each a number and a type (one varint), then the value: a varint, 8 bytes, bytes with
their length, or 4 bytes. (https://protobuf.dev/programming-guides/encoding/)
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Returns number and value of each field: a varint as int, everything else as bytes.

    Raises ValueError for what is no message.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        match kind:
            case 0:
                value, at = _varint(message, at)
                yield number, value
                continue
            case 1 | 5:
                length = 8 if kind == _EIGHT else 4
            case 2:
                length, at = _varint(message, at)
            case _:
                raise ValueError(f"field {number} has the unknown type {kind}")
        if number == 0 or at + length > len(message):
            raise ValueError("it ends within a field")
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns the number that begins at `at`, and where it ends."""
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        if at >= len(message):
            raise ValueError("it ends within a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than ten bytes")
