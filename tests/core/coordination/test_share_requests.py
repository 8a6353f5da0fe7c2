"""Shares at the coordinator: who is answered when, and with what."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.loop_messages import (
    BEGINS,
    FINISHES,
    IS_BACK,
    LEAVES,
    SharesLeft,
    ShareTaken,
    ShareTrained,
    TakeShare,
)
from paceline.core.coordination.roster import ProgressTotals
from paceline.core.coordination.sample_leases import ShareRequests
from paceline.core.errors import ProtocolError
from paceline.core.samples.shares_kept import KeptShare

NONE = ShareTaken(stream=0)


class Desk:
    """A coordinator's part, by hand."""

    def __init__(self, workers: int = 3, kept: tuple[KeptShare, ...] = ()) -> None:
        self.here, self.totals = set(range(workers)), ProgressTotals()
        self.answers: list[tuple[int, ShareTaken]] = []
        self.reports: list[SharesLeft] = []
        self.requests = ShareRequests(
            lambda to, answer: self.answers.append((next(iter(to)).index, answer)),
            self.totals,
            lambda: self.here,
            kept,
            self.reports.append,
        )
        for rank in range(workers):
            self.says(rank, BEGINS, kept[rank].place if kept else 0)

    def says(self, rank: int, event: str, own: int = 0, taken: int = 0, sizes: tuple[int, ...] = (8, 8, 8)) -> None:
        said = ShareTrained(stream=0, sizes=sizes, own=own, taken=taken, steps=4, event=event)
        self.requests.trained(rank, said)

    def asks(self, rank: int, epochs: int = 1, steps: int = 0, **more: Any) -> list[tuple[int, ShareTaken]]:
        ask = {"stream": 0, "wanted": 2, "epochs": epochs, "taken": 0, "steps": steps, **more}
        self.requests.take(rank, TakeShare(**ask))
        return self.answered()

    def leaves(self, rank: int, own: int) -> list[tuple[int, ShareTaken]]:
        self.says(rank, LEAVES, own)
        return self.is_lost(rank)

    def is_lost(self, rank: int) -> list[tuple[int, ShareTaken]]:
        self.here.discard(rank)
        self.requests.gone(rank)
        return self.answered()

    def answered(self) -> list[tuple[int, ShareTaken]]:
        found, self.answers = self.answers, []
        return found


def piece(rank: int, start: int, stop: int) -> ShareTaken:
    return ShareTaken(stream=0, rank=rank, start=start, stop=stop)


def test_what_a_worker_leaves_goes_to_those_that_ask() -> None:
    desk = Desk()
    assert desk.asks(0) == [(0, NONE)]
    assert desk.leaves(1, 4) == []
    assert desk.asks(0) == [(0, piece(1, 4, 6))]
    assert desk.asks(2) == [(2, piece(1, 6, 8))]
    assert desk.asks(0, taken=2) == [(0, NONE)]


def test_one_that_may_wait_is_answered_when_others_leave_something_or_are_done() -> None:
    desk = Desk()
    assert desk.asks(0, steps=4) == []
    assert desk.leaves(1, 7) == [(0, piece(1, 7, 8))]
    assert desk.asks(0, steps=5) == []
    assert desk.asks(2, steps=4) == [(0, NONE), (2, NONE)]


def test_one_that_waits_gets_what_is_left_before_others_that_come_later() -> None:
    desk = Desk()
    assert desk.asks(2, steps=4) == desk.asks(0, steps=4) == []
    assert desk.leaves(1, 4) == [(2, piece(1, 4, 6)), (0, piece(1, 6, 8))]


def test_what_a_worker_leaves_is_free_while_it_makes_its_last_exchange() -> None:
    """In that it may wait for those that would wait for it."""
    desk = Desk()
    assert desk.asks(0, steps=4) == []
    desk.says(1, LEAVES, 6)
    assert desk.answered() == [(0, piece(1, 6, 8))]
    assert desk.asks(0, steps=5) == [], "worker 2 may leave something, too"
    desk.says(2, LEAVES, 8)
    assert desk.answered() == [(0, NONE)]
    assert desk.is_lost(1) == desk.is_lost(2) == []


def test_nobody_waits_for_one_that_has_finished_and_makes_its_last_exchange() -> None:
    desk = Desk()
    desk.says(1, FINISHES, 8)
    assert desk.asks(0, epochs=4, steps=16) == []
    desk.says(2, FINISHES, 8)
    assert desk.answered() == [(0, NONE)]


def test_nobody_waits_once_servers_went_back() -> None:
    desk = Desk()
    assert desk.asks(0, steps=4) == []
    desk.requests.servers_go_back()
    assert desk.answered() == [(0, NONE)]
    assert desk.asks(2, steps=4) == [(2, NONE)]


def test_of_a_lost_worker_its_progress_says_how_far_it_was() -> None:
    desk = Desk()
    desk.totals.told(1, control.Progress(**{**_fields(control.NOTHING), "share": 6}))
    desk.is_lost(1)
    assert desk.asks(0) == [(0, piece(1, 6, 8))]


def test_one_that_is_back_asks_for_its_own_share() -> None:
    desk = Desk()
    desk.leaves(1, 3)
    desk.here.add(1)
    desk.says(1, IS_BACK)
    assert desk.asks(1, epochs=0) == [(1, piece(1, 3, 5))]
    assert desk.asks(0) == [(0, piece(1, 5, 8))], "it shares it with the others; three are one piece"


def test_what_nobody_will_train_is_known() -> None:
    desk = Desk()
    assert desk.requests.untrained() == {}
    desk.asks(0)
    desk.leaves(1, 5)
    assert desk.requests.untrained() == {1: 3}


@pytest.mark.parametrize("sizes", [(), (8,)])
def test_shares_without_one_of_its_own_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError):
        Desk().says(2, BEGINS, sizes=sizes)


def test_shares_that_are_not_those_of_the_others_are_refused() -> None:
    desk = Desk()
    desk.says(2, BEGINS, sizes=(8, 8, 9))
    ((rank, why),) = desk.requests.take_refused()
    assert rank == 2
    assert "worker 2 shares a data set of 25 samples with others that have 24, or by another partition" in why


def test_the_first_to_report_shares_that_most_do_not_have_is_found_out_and_nobody_else() -> None:
    desk = Desk(workers=0)
    desk.here = {0, 1, 2}
    desk.says(2, BEGINS, sizes=(9, 9, 10**6))
    desk.says(0, BEGINS, own=2)
    assert desk.requests.take_refused() == [], "one against one"
    desk.says(1, BEGINS)
    assert [rank for rank, _ in desk.requests.take_refused()] == [2]
    desk.is_lost(2)
    ((rank, piece),) = desk.asks(1)
    assert (rank, piece.rank, piece.start) == (1, 2, 0)
    desk.here.discard(0)
    desk.says(0, LEAVES, own=3)
    desk.is_lost(0)
    while desk.asks(1)[0][1].rank == 2:
        pass
    desk.says(1, BEGINS, sizes=(9, 9, 9))
    assert [rank for rank, _ in desk.requests.take_refused()] == [1]


def test_a_worker_whose_shares_were_refused_is_answered_by_those_of_the_others() -> None:
    desk = Desk()
    assert desk.asks(2, steps=4) == []
    desk.says(2, BEGINS, sizes=(8, 8, 9))
    desk.requests.take_refused()
    assert desk.is_lost(0) == [(2, piece(0, 0, 2))]


def test_a_request_of_nothing_or_of_a_data_set_without_shares_is_refused() -> None:
    for wrong in ({"wanted": 0}, {"stream": 1}):
        desk = Desk()
        with pytest.raises(ProtocolError, match="asks for"):
            desk.asks(0, **wrong)
        ((rank, answer),) = desk.answered()  # it waits for one, and others may wait for it
        assert (rank, answer.start, answer.stop) == (0, 0, 0)


def _fields(progress: control.Progress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in control.Progress.__dataclass_fields__}


# ---- for checkpoints ---------------------------------------------------------------------------------------------
def test_what_workers_that_are_gone_have_trained_is_reported_when_it_changes() -> None:
    desk = Desk()
    assert desk.reports == []
    desk.leaves(1, 4)
    assert desk.reports[-1] == SharesLeft(free=((1, 8),), trained=((1, 0, 4),))
    assert desk.asks(0) == [(0, piece(1, 4, 6))]
    assert desk.asks(2) == [(2, piece(1, 6, 8))]
    desk.says(0, LEAVES, own=8, taken=2)
    assert desk.reports[-1] == SharesLeft(free=((0, 8), (1, 8)), trained=((0, 0, 8), (1, 0, 6)))


def test_a_run_that_goes_on_gives_out_what_nobody_had_trained_and_reports_what_was() -> None:
    desk = Desk(kept=(KeptShare(8), KeptShare(8, ((4, 7),)), KeptShare(8)))
    assert desk.reports == [SharesLeft(free=(), trained=((0, 0, 8), (1, 0, 4), (1, 7, 8), (2, 0, 8)))]
    assert desk.asks(2) == [(2, piece(1, 4, 7))], "no piece ends with a single sample"
    assert desk.asks(0) == [(0, NONE)]


def test_a_worker_that_is_lost_before_it_begins_its_share_leaves_it_from_where_the_run_goes_on() -> None:
    desk = Desk(workers=0, kept=(KeptShare(8), KeptShare(8), KeptShare(8)))
    desk.here = {0, 2}
    for rank in (0, 2):
        desk.says(rank, BEGINS, 8)
    assert desk.asks(0, epochs=2) == [(0, piece(1, 8, 10))]
