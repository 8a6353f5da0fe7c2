"""Memory without torch: what arrives is read where it lies, and what has left is not changed."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from paceline.live.net.zero_copy import SharedMemory
from paceline.live.numpy_memory import PlainMemory


def test_room_is_written_once() -> None:
    memory = PlainMemory()
    v = memory.empty(4)
    for part, number in ((v[:2], 1.0), (v[2:], 2.0)):
        memory.bytes_of(part)[:] = np.full(2, number, np.float32).tobytes()
    assert v.tolist() == [1.0, 1.0, 2.0, 2.0]
    assert not memory.bytes_of(v[:2]).readonly  # nobody has asked for these before
    memory.bytes_of(v)
    assert memory.bytes_of(v).readonly
    with pytest.raises(ValueError, match="read-only"):
        v[0] = 3.0


def test_what_is_borrowed_is_given_back_when_the_last_that_reads_it_is_gone() -> None:
    memory, given_back = PlainMemory(), list[int]()
    assert isinstance(memory, SharedMemory)
    v = memory.view(memoryview(np.arange(3, dtype=np.float32)).cast("B"), 0, 3, given_back.append, 7)
    end, data = v[1:], memory.bytes_of(v[:1])
    del v
    gc.collect()
    assert (end.tolist(), np.frombuffer(data, np.float32).tolist(), given_back) == ([1.0, 2.0], [0.0], [])
    del end
    gc.collect()
    assert given_back == []
    data.release()
    del data
    gc.collect()
    assert given_back == [7]


def test_parts_are_joined_and_one_is_what_it_is() -> None:
    memory = PlainMemory()
    one, two = np.ones(2, np.float32), np.zeros(1, np.float32)
    assert memory.join([one]) is one
    assert memory.join([one, two]).tolist() == [1.0, 1.0, 0.0]
