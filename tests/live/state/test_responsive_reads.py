"""Who looks at workers of which one does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.errors import PeerLost
from paceline.live.node.published_state import PublishedState
from paceline.live.node.state_reader import StateReader
from paceline.live.numpy_memory import PlainMemory
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.state.responsive_reads import Answering, NoAnswer


class Workers(StateReader):
    """Answers at once for all but the `silent`, whose questions it keeps."""

    def __init__(self) -> None:
        self.out: Any = self
        self.silent: set[int] = set()
        self.lost: set[int] = set()
        self.asked: list[int] = []
        self.kept: list[PendingReply] = []

    def call(self, rank: int, message: Any) -> PendingReply:
        self.asked.append(rank)
        pending = PendingReply(f"worker {rank}", 1, PlainMemory())
        if rank in self.silent:
            self.kept.append(pending)
        elif rank in self.lost:
            pending.fail(PeerLost("gone"))
        else:
            pending.put(0, PublishedState(v=bytearray(4), weight=float(rank)), 0.0)
        return pending


def test_a_worker_is_left_out_from_when_it_falls_silent_until_it_answers() -> None:
    workers = Workers()
    answering = Answering(workers, patience_s=0.01)
    assert answering.read_model(1)[1] == 1.0
    workers.silent = {1}
    for _ in range(5):
        with pytest.raises(NoAnswer):
            answering.read_model(1)
        assert answering.read_model(2)[1] == 2.0
    assert workers.asked.count(1) == 2, "it is waited for once, not with every look"
    workers.silent.clear()
    workers.kept[0].put(0, PublishedState(v=bytearray(4)), 0.0)
    assert answering.read_model(1)[1] == 1.0


def test_one_that_shows_nothing_of_use_is_not_lost() -> None:
    workers = Workers()
    workers.model_length = lambda: 5  # type: ignore[method-assign]
    with pytest.raises(NoAnswer, match="worker 1 shows nothing of use"):
        Answering(workers).read_model(1)


def test_one_that_is_lost_while_it_is_silent_is_asked_again_and_found_lost() -> None:
    workers = Workers()
    workers.silent, answering = {0}, Answering(workers, patience_s=0.01)
    with pytest.raises(NoAnswer):
        answering.read_state(0, "buffers")
    workers.silent, workers.lost = set(), {0}
    workers.kept[0].fail(PeerLost("gone"))
    with pytest.raises(PeerLost) as raised:
        answering.read_state(0, "buffers")
    assert not isinstance(raised.value, NoAnswer)


def test_all_answer_where_those_that_are_not_lost_do() -> None:
    workers = Workers()
    workers.lost = {1}
    answering = Answering(workers, patience_s=0.01)
    assert answering.all_answer(range(3))
    workers.silent = {2}
    assert not answering.all_answer(range(3))
