"""A result that has not come yet."""

from __future__ import annotations

import time

import numpy as np
import pytest

from paceline.core.errors import PeerLost, TimedOut
from paceline.core.paramserver.gated_server import Weights
from paceline.core.vector import cut
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory, address, in_background, vector

SHARDS = cut(10, 3)


def fill(pending: PendingReply, part: int, version: int) -> None:
    """Answer `part` as the wire does: into the room given for it."""
    length = SHARDS[part].stop - SHARDS[part].start
    (room,) = pending.room(part, SHARDS, [length])
    room[:] = np.arange(SHARDS[part].start, SHARDS[part].stop)
    pending.put(part, Weights(w=room, version=version), 0.0)


def test_answers_of_the_shards_are_joined_without_a_copy() -> None:
    memory = NumpyMemory()
    pending = PendingReply("weights", 3, memory)
    rooms = []
    for part in (2, 0, 1):
        fill(pending, part, version=part + 5)
        rooms.append(pending._parts[part].w)
    answer = pending.wait(1.0)
    assert answer.w.tolist() == list(range(10))
    assert address(answer.w) == address(rooms[1])
    assert memory.made == 10, "one buffer for all of them"
    assert answer.version == 5, "what every shard has reached"


def test_an_answer_of_one_party_is_the_answer() -> None:
    pending = PendingReply("weights", 1, NumpyMemory())
    (room,) = pending.room(0, SHARDS, [4])
    assert len(room) == 4
    answer = Weights(w=room, version=1)
    pending.put(0, answer, 0.0)
    assert pending.wait(1.0) is answer


def test_a_part_of_unexpected_length_gets_a_room_of_its_own() -> None:
    memory = NumpyMemory()
    pending = PendingReply("something", 3, memory)
    (room,) = pending.room(1, SHARDS, [7])
    assert len(room) == 7
    assert memory.made == 7


def test_a_wait_that_takes_too_long_names_what_it_waited_for() -> None:
    pending = PendingReply("the answer of servers to Push", 2, NumpyMemory())
    pending.put(0, Weights(w=vector(1), version=1), 0.0)
    with pytest.raises(TimedOut, match="waited 0 s for the answer of servers to Push"):
        pending.wait(0.01)


def test_time_counts_from_the_last_departure_of_a_worker_whom_others_may_have_waited_for() -> None:
    departures = iter([0, 1, 2, 2])
    pending = PendingReply("the answer of 1 to RoundSent", 1, NumpyMemory(), departures=lambda: next(departures))
    with pytest.raises(TimedOut):
        pending.wait(0.01)
    assert next(departures, None) is None


def test_whoever_waits_is_woken_by_the_last_answer() -> None:
    pending = PendingReply("weights", 2, NumpyMemory())
    answer = in_background(lambda: pending.wait(PATIENCE_SECONDS))
    for part in range(2):
        pending.put(part, Weights(w=vector(part), version=1), 0.0)
    assert answer().w.tolist() == [0, 1]


def test_whoever_waits_is_woken_by_a_failure() -> None:
    pending = PendingReply("weights", 1, NumpyMemory())
    answer = in_background(lambda: pending.wait(PATIENCE_SECONDS))
    pending.fail(PeerLost("gone"))
    with pytest.raises(PeerLost, match="gone"):
        answer()
    with pytest.raises(PeerLost, match="gone"):
        pending.wait(1.0)


def test_time_of_communicating_is_that_of_the_slowest_way_out_and_the_slowest_way_back() -> None:
    pending = PendingReply("weights", 2, NumpyMemory())
    pending.begun -= 10.0  # long ago
    for seconds in (0.25, 0.5):
        pending.sent.append(Envelope(Kind.CALL, None, sent_at=pending.begun + seconds))
    pending.put(0, Weights(w=vector(1), version=1), 0.125)
    pending.put(1, Weights(w=vector(1), version=1), 2.0)
    assert pending.seconds_communicating() == pytest.approx(2.5)
    assert pending.begun <= time.monotonic()


def test_what_moved_before_somebody_waited_is_not_counted() -> None:
    """A call that was started in the background may have arrived, in part or as a whole, during the next step."""
    pending = PendingReply("weights", 1, NumpyMemory())
    pending.begun -= 10.0
    pending.sent.append(Envelope(Kind.CALL, None, sent_at=pending.begun + 6.0))
    pending.put(0, Weights(w=vector(1), version=1), 2.0)
    there = time.monotonic()
    assert pending.seconds_communicating(pending.begun) == pytest.approx(8.0)
    assert pending.seconds_communicating(pending.begun + 5.0) == pytest.approx(3.0)
    assert 1.0 <= pending.seconds_communicating(pending.begun + 9.0) <= there - (pending.begun + 9.0)
    assert pending.seconds_communicating(there) == 0.0


def test_what_has_not_been_sent_yet_takes_no_time() -> None:
    pending = PendingReply("weights", 1, NumpyMemory())
    pending.sent.append(Envelope(Kind.CALL, None))
    assert pending.seconds_communicating() == 0
