"""Every second of communication is either waited for or hidden."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.live.node.timing import AwaitedSeconds, Times
from paceline.live.protocol.pending_reply import PendingReply
from tests.live.fakes import NumpyMemory


class Moved(PendingReply):
    """Bytes of it moved during these spans; whoever read it early waited for so long."""

    def __init__(self, *spans: tuple[float, float], waited: float = 0.0, streams: bool = False) -> None:
        super().__init__("an answer", 1, NumpyMemory())
        self.begun = 0.0
        self._moved = list(spans)
        self._waited, self._streams = waited, streams

    @property
    def streams(self) -> bool:
        return self._streams

    @property
    def seconds_waited(self) -> float:
        return self._waited


def sums(times: Times) -> tuple[float, float, float]:
    return times.waiting, times.communicating, times.hidden


@pytest.mark.parametrize(
    ("spans", "since", "until", "sending", "wanted"),
    [
        ([(0, 2), (5, 6)], 0, 6, 0, (3, 3, 0)),  # a call that is waited for from its first byte on
        ([(0, 2), (5, 6)], 6, 6.5, 0, (0.5, 0, 3)),  # one that was started and came before it was waited for
        ([(0, 2), (5, 7)], 6, 8, 0, (1, 1, 3)),  # and one that came in the middle
        ([(0, 2), (1, 3)], 4, 5, 2, (1, 2, 1)),  # the party sent two seconds of it by itself
    ],
)
def test_a_wait(
    spans: list[tuple[float, float]], since: float, until: float, sending: float, wanted: tuple[float, ...]
) -> None:
    times, told = Times(), []
    times.on_wait = lambda *seconds: told.append(seconds)
    times.waited(AwaitedSeconds(Moved(*spans), since), until, sending)
    assert sums(times) == pytest.approx(wanted)
    assert told == [sums(times)]


def test_what_arrives_after_the_answer_was_taken_is_hidden_but_for_the_waits_of_its_readers() -> None:
    times = Times()
    answer: Any = Moved((0, 1), (2, 3), waited=1.5, streams=True)
    times.waited(AwaitedSeconds(answer, 0), 3)  # the first slice was there
    assert sums(times) == (1, 2, 0)
    answer._moved.append((3, 6))
    times.arrived()
    assert sums(times) == (1, 3.5, 1.5)
    times.arrived()
    assert sums(times) == (1, 3.5, 1.5), "once"
    times.reset()
    assert sums(times) == (0, 0, 0)
