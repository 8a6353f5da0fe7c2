"""Segments: pieces of memory that can be lent, and what becomes of them."""

from __future__ import annotations

import gc
import itertools
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from paceline.live.same_host.shared_memory import Segments
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory

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
    assert taken(segments) >= 4 * PIECE_BYTES
    part = held[1][5:10]
    del held[0], held[0], v
    rooms.clear()
    assert taken(segments) >= 3 * PIECE_BYTES, "a part of a piece keeps all of it"
    assert part.tolist() == [1] * 5
    del part
    gc.collect()
    assert taken(segments) <= 2 * PIECE_BYTES
    assert [np.unique(v).tolist() for v in held] == [[2], [3]]


def taken(segments: Segments) -> int:
    return sum(512 * os.fstat(segment.descriptor).st_blocks for segment in segments._segments.values())


def test_a_forked_child_that_lets_go_of_a_piece_leaves_it_to_its_parent() -> None:
    said = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert (said.stdout.split(), said.stderr) == (["0", "7"], "")


FORKS = """
import os
from paceline.live.same_host.shared_memory import Segments
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
    monkeypatch.setattr("paceline.live.same_host.shared_memory.SEGMENTS_MAX", 2)
    segments = Segments()
    large = 64 << 20
    rooms = [segments.make(large) for _ in range(3)]
    assert [room is None for room in rooms] == [False, False, True]
    rooms.clear()
    assert segments.make(large) is not None


# ---- short pieces, which share a file ----------------------------------------------------------------------------
SHORT_BYTES = 100_000


def test_what_nobody_uses_any_more_is_used_again_and_joined_with_its_neighbours() -> None:
    segments = Segments()
    rooms = [segments.make(SHORT_BYTES) for _ in range(8)]
    before = [segments.find(begin(room), 1) for room in rooms]
    del rooms[2:5]
    gc.collect()
    again = [segments.make(SHORT_BYTES) for _ in range(3)]
    assert sorted(segments.find(begin(room), 1) for room in again) == before[2:5]  # type: ignore[type-var]
    again.clear()
    joined = segments.make(3 * SHORT_BYTES)
    assert segments.find(begin(joined), 1) == before[2], "three that lay side by side have room for one"
    assert len(segments._segments) == 1


def test_a_burst_of_short_pieces_again_and_again_takes_no_more_than_the_first() -> None:
    segments, draw = Segments(), random.Random(1)
    for _ in range(4):
        held = [np.frombuffer(segments.make(SHORT_BYTES + 512 * n), np.uint8) for n in range(64)]  # type: ignore[call-overload]
        for v in held:
            v[:] = 1
        draw.shuffle(held)
        assert taken(segments) <= 1.1 * sum(v.nbytes for v in held)
        del held[3:], v


def test_what_others_may_still_read_is_not_used_again() -> None:
    segments = Segments()
    kept, room = segments.make(SHORT_BYTES), segments.make(SHORT_BYTES)
    place = segments.find(begin(room), 1)
    segments.leave(begin(room), SHORT_BYTES)
    del room
    gc.collect()
    others = [segments.make(SHORT_BYTES) for _ in range(8)]
    assert place not in [segments.find(begin(other), 1) for other in others]
    assert kept is not None


def test_many_long_pieces_share_files_so_that_descriptors_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.live.same_host.shared_memory.OWN_FILES_MAX", 4)
    segments = Segments()
    rooms = [segments.make(1 << 20) for _ in range(40)]
    assert len(segments._segments) == 5
    rooms.clear()
    gc.collect()
    assert len(segments._segments) == 1, "the newest that pieces share is kept"


def begin(room: memoryview | None) -> int:
    assert room is not None
    return NumpyMemory().address_of(np.frombuffer(room, np.uint8))
