"""MXNet's error, and its conversion of keys."""

from __future__ import annotations


class MXNetError(RuntimeError):
    """What a store refuses."""


def py_str(text: bytes) -> str:
    return text.decode()
