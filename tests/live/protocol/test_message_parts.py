"""Messages that grow with the number of parties are sent in parts."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.errors import ProtocolError
from paceline.core.sharding import Layout
from paceline.live.numpy_memory import PlainMemory
from paceline.live.protocol.frames import HEADER_BYTES_MAX, encode
from paceline.live.protocol.message_parts import ENTRIES_MAX, MessageParts, parts_of
from paceline.live.protocol.transport import Envelope, Kind

HOST = "a-host-with-a-name-that-is-as-long-as-those-of-some-clouds.internal.example"


def roster(workers: int) -> control.Roster:
    names = [f"worker {rank}" for rank in range(workers)]
    return control.Roster(
        addresses=dict.fromkeys(names, f"{HOST}:65535"),
        hosts=dict.fromkeys(names, HOST),
        incarnations=tuple(range(workers)),
        gone=tuple(range(0, workers, 2)),
        server_view=3,
    )


def plan(workers: int) -> control.Plan:
    return control.Plan(
        workers=workers,
        servers=1,
        length=10,
        layout=Layout((0, 10), (0,)),
        seconds_per_step=(0.125,) * workers,
        optimizer="{}",
        devices=("cuda:0",) * workers,
        hosts=tuple(f"{rank}.{HOST}" for rank in range(workers)),
        tensors=(5, 5),
    )


def joined(parts: list[Any]) -> Any:
    receiver = MessageParts()
    *early, last = [receiver.join(part) for part in parts]
    assert early == [None] * len(early)
    return last


@pytest.mark.parametrize("workers", [0, 1, ENTRIES_MAX, ENTRIES_MAX + 1, 600, 10_000])
@pytest.mark.parametrize("make", [roster, plan])
def test_parts_make_the_message_again_and_each_fits_in_a_frame(make: Any, workers: int) -> None:
    whole = make(workers)
    parts = list(parts_of(whole))
    assert joined(parts) == whole
    assert len(parts) == max(1, -(-workers // ENTRIES_MAX))
    for part in parts:
        assert len(encode(Envelope(Kind.CONTROL, part), PlainMemory())[0]) < HEADER_BYTES_MAX


def test_a_message_of_another_class_is_never_cut() -> None:
    message = control.Go(at=1.0)
    assert list(parts_of(message)) == [message]
    assert MessageParts().join(message) is message


def test_a_part_of_another_message_in_between_is_refused() -> None:
    receiver = MessageParts()
    assert receiver.join(next(iter(parts_of(roster(600))))) is None
    with pytest.raises(ProtocolError, match="Plan came after 1 parts"):
        receiver.join(plan(3))


def test_messages_that_are_not_cut_may_come_between_parts() -> None:
    receiver = MessageParts()
    first, *others = parts_of(roster(ENTRIES_MAX + 1))
    assert receiver.join(first) is None
    assert receiver.join(control.Go()) == control.Go()
    assert [receiver.join(part) for part in others] == [roster(ENTRIES_MAX + 1)]
