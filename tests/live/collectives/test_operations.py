"""One mean among workers: who has left, who is lost, and lengths that differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from paceline.core.collective import PEERS
from paceline.core.coordination.party import worker
from paceline.core.errors import Diverged, PeerLost, ProtocolError
from paceline.live.collectives.peer_backend import Piece, from_id, id_of, key_of
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.collectives.three_workers import Workers, failure, numbers
from tests.live.fakes import PATIENCE_SECONDS

STRIP_BYTES = 64


TWO_HOSTS = ((0, 2), (1,))


ALL = (0, 1, 2)


def test_nobody_of_any_weight_gives_zeros(three: Workers) -> None:
    tickets = [three.begin(rank, [9.0, rank], ALL, "m", weight=0.0) for rank in ALL]
    results = [ticket.wait(PATIENCE_SECONDS) for ticket in tickets]
    assert [(list(result.v), result.weight) for result in results] == [([0.0, 0.0], 0.0)] * 3


@pytest.mark.parametrize("by", PEERS)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_worker_that_left_holds_nobody_up_and_counts_nothing(three: Workers, by: str, when: str) -> None:
    if when == "before":
        three.carriers[1].leave([0, 2])
    tickets = [three.begin(rank, [rank + 1.0] * 40, ALL, "m", by=by) for rank in (0, 2)]
    if when == "meanwhile":
        three.carriers[1].leave([0, 2])
    results = [ticket.wait(PATIENCE_SECONDS) for ticket in tickets]
    assert [(set(result.v), result.weight) for result in results] == [({2.0}, 2.0)] * 2


def test_the_last_one_averages_with_itself_when_all_others_have_left(three: Workers) -> None:
    for rank in (0, 1):
        three.carriers[rank].leave([other for other in ALL if other != rank])
    for tag in "abc":
        assert numbers(three.begin(2, [5.0] * 40, ALL, tag)) == [5.0] * 40


def test_a_worker_that_left_finishes_what_it_had_begun(three: Workers) -> None:
    begun = three.begin(1, [4.0] * 40, ALL, "m")
    three.carriers[1].leave([0, 2])
    others = [three.begin(rank, [1.0] * 40, ALL, "m") for rank in (0, 2)]
    assert [numbers(ticket) for ticket in (begun, *others)] == [[2.0] * 40] * 3


def test_a_worker_that_is_lost_fails_the_means_that_it_is_in_now_and_later(three: Workers) -> None:
    waiting = three.begin(0, [1.0] * 40, ALL, "m")
    pair = [three.begin(rank, [1.0 + rank] * 40, (0, 1), "pair") for rank in (0, 1)]
    three.transports[2].close()
    assert isinstance(failure(waiting), PeerLost)
    assert "worker 2" in str(failure(three.begin(1, [1.0], ALL, "later")))
    assert [numbers(ticket)[0] for ticket in pair] == [1.5, 1.5]


def test_vectors_of_unlike_lengths_are_not_added_up(three: Workers) -> None:
    tickets = [three.begin(rank, [1.0] * (5 + rank), (0, 1), "x") for rank in (0, 1)]
    assert str(failure(tickets[0])) == "x: 5 numbers here, 6 at worker 1"
    assert isinstance(failure(tickets[1]), ProtocolError)
    assert [sorted(set(told)) for told in three.refused] == [[1], [0], []]


def test_a_piece_that_is_too_short_is_named_by_the_rank_of_its_sender(three: Workers) -> None:
    ticket = three.begin(1, [1.0] * 6, (1, 2), "x")
    short = Piece(v=np.zeros(1, np.float32), weight=1.0, length=6)
    three.transports[2].send(worker(1), Envelope(Kind.MEAN, short, id_of(key_of("x", (1, 2)), 0, 0)))
    assert str(failure(ticket)) == "x: worker 2 sent 1 numbers in step 0"
    assert three.refused[1] == [2]


def test_an_id_says_which_mean_which_strip_and_which_step() -> None:
    key = key_of("bsp/7", ALL)
    assert from_id(id_of(key, 65535, 16383)) == (key, 65535, 16383)
    assert len({key_of("bsp/7", ALL), key_of("bsp/8", ALL), key_of("bsp/7", (0, 1))}) == 3
    assert id_of(key, 65535, 16383) < 1 << 64


# ---- numbers that are not finite ------------------------------------------------------------------------------
@pytest.fixture
def checked() -> Iterator[Workers]:
    workers = Workers(3, checked=True)
    yield workers
    workers.close()


@pytest.mark.parametrize("by", PEERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_part_that_is_not_finite_counts_nothing(checked: Workers, by: str, bad: float) -> None:
    parts = [[1.0] * 40, [bad] * 40, [3.0] * 40]
    results = [checked.begin(rank, parts[rank], ALL, "m", by=by).wait for rank in ALL]
    means = [wait(PATIENCE_SECONDS) for wait in results]
    assert [(set(mean.v), mean.weight) for mean in means] == [({2.0}, 2.0)] * 3


def test_one_bad_number_costs_its_strip_and_the_mean_weighs_what_all_of_it_has(checked: Workers) -> None:
    length = 3 * STRIP_BYTES // 4
    parts = [[float(rank)] * length for rank in ALL]
    parts[2][20] = np.nan  # in the second of three strips
    means = [
        wait(PATIENCE_SECONDS) for wait in [checked.begin(rank, parts[rank], ALL, "m", weight=2.0).wait for rank in ALL]
    ]
    third = length // 3
    expected = [1.0] * third + [0.5] * third + [1.0] * third
    assert [list(mean.v) for mean in means] == [expected] * 3
    assert [mean.weight for mean in means] == [4.0] * 3
    assert checked.told == [(2, 1, False, True)], "a mean counts once, whatever its strips"
    for wait in [checked.begin(rank, [1.0] * length, ALL, "next").wait for rank in ALL]:
        wait(PATIENCE_SECONDS)
    assert checked.told[1:] == [(2, 2, True, True)]


def test_if_nobody_has_finite_numbers_the_model_has_diverged(checked: Workers) -> None:
    tickets = [checked.begin(rank, [np.nan] * 40, ALL, "bsp/7") for rank in ALL]
    errors = [failure(ticket) for ticket in tickets]
    assert {type(error) for error in errors} == {Diverged}
    assert {str(error) for error in errors} == {
        "the model has diverged: nobody's part of the mean bsp/7 is finite; lower --lr"
    }


def test_who_has_no_weight_gets_zeros_where_the_others_have_diverged(checked: Workers) -> None:
    tickets = [checked.begin(rank, [np.nan if rank else 5.0] * 40, ALL, "m", weight=float(rank > 0)) for rank in ALL]
    result = tickets[0].wait(PATIENCE_SECONDS)
    assert (set(result.v), result.weight) == ({0.0}, 0.0)
    assert {type(failure(ticket)) for ticket in tickets[1:]} == {Diverged}
