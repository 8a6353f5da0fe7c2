"""Segments: pieces of memory that can be lent, and what becomes of them."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from paceline.live.segments import Segments
from tests.live.doubles import PATIENCE_SECONDS, NumpyMemory

pytestmark = pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")

PIECE_BYTES = 4 << 20  # whole pages, also where those are huge


def test_pieces_of_one_segment_do_not_overlap() -> None:
    segments = Segments()
    rooms = [segments.make(n) for n in (1, 128, 129, 100_000, 4)]
    places = sorted(segments.find(NumpyMemory().address_of(np.frombuffer(room, np.uint8)), 1) for room in rooms if room)  # type: ignore[type-var]
    assert len({segment for segment, _ in places}) == 1  # type: ignore[misc]
    assert [b - a for (_, a), (_, b) in itertools.pairwise(places)] == [128, 128, 256, 100_096]  # type: ignore[misc]


def test_a_piece_that_nobody_has_takes_no_memory_though_its_neighbours_are_in_use() -> None:
    segments = Segments()
    rooms = [segments.make(PIECE_BYTES) for _ in range(4)]
    held = [np.frombuffer(room, np.uint8) for room in rooms if room]
    for number, v in enumerate(held):
        v[:] = number
    (descriptor,) = [descriptor for _, _, descriptor, _ in segments._places.values()]
    assert taken(descriptor) >= 4 * PIECE_BYTES
    part = held[1][5:10]
    del held[0], held[0], v
    rooms.clear()
    assert taken(descriptor) >= 3 * PIECE_BYTES, "a part of a piece keeps all of it"
    assert part.tolist() == [1] * 5
    del part
    gc.collect()
    assert taken(descriptor) <= 2 * PIECE_BYTES
    assert [np.unique(v).tolist() for v in held] == [[2], [3]]


def taken(descriptor: int) -> int:
    return 512 * os.fstat(descriptor).st_blocks


def test_a_forked_child_that_lets_go_of_a_piece_leaves_it_to_its_parent() -> None:
    said = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert (said.stdout.split(), said.stderr) == (["0", "7"], "")


FORKS = """
import os
from paceline.live.segments import Segments
segments = Segments()
room = segments.make(1 << 20)
room[:] = bytes([7]) * len(room)
child = os.fork()
if not child:
    del room, segments
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), room[1 << 19])
"""


def test_memory_that_is_no_segment_is_not_found() -> None:
    segments = Segments()
    room = segments.make(4096)
    assert room is not None
    begin = NumpyMemory().address_of(np.frombuffer(room, np.uint8))
    assert segments.find(begin, 4096) == (1, 0)
    assert segments.find(begin - 4, 4096) is None
    assert segments.find(begin, 1 << 30) is None
    assert segments.find(0, 4) is None


def test_there_are_so_many_segments_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.live.segments.SEGMENTS_MAX", 2)
    segments = Segments()
    large = 64 << 20
    rooms = [segments.make(large) for _ in range(3)]
    assert [room is None for room in rooms] == [False, False, True]
    rooms.clear()
    assert segments.make(large) is not None
