"""Streams that take nothing, or lack characters."""

from __future__ import annotations

import io
import os
from collections.abc import Callable

import pytest

from paceline.observe.terminal.streams import DroppingStream


def broken_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("lost", [broken_pipe, lambda: os.open("/dev/full", os.O_WRONLY)], ids=["pipe", "disk"])
def test_what_cannot_be_written_is_dropped_and_the_stream_stays_usable(lost: Callable[[], int]) -> None:
    with open(lost(), "w", encoding="utf-8") as file:
        stream = DroppingStream(file)
        for _ in range(3):
            print("x" * 100_000, file=stream, flush=True)

    # Closing it flushed what was left: nothing fails when the interpreter exits either.


def test_characters_that_an_encoding_lacks_are_replaced() -> None:
    raw = io.BytesIO()
    stream = DroppingStream(io.TextIOWrapper(raw, encoding="ascii"))
    print("Ünïcode ─", file=stream, flush=True)
    assert raw.getvalue() == b"?n?code ?\n"
