"""Means over the connections between workers: several at once, among any of them, with those who leave or are lost."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from paceline.core.collective import PEERS
from paceline.core.coordination.party import Party, worker
from paceline.core.effects import Mean
from paceline.core.errors import PeerLost, ProtocolError
from paceline.live.collectives.operations import Take
from paceline.live.collectives.peer_backend import EARLY_MAX, Piece, id_of, key_of
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.collectives.three_workers import Workers, failure, numbers
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory

STRIP_BYTES = 64


TWO_HOSTS = ((0, 2), (1,))


ALL = (0, 1, 2)


@pytest.mark.parametrize("by", PEERS)
@pytest.mark.parametrize("length", [1, 16, 1000])
def test_the_mean_is_weighted_and_the_same_for_all_however_many_strips_it_takes(
    three: Workers, by: str, length: int
) -> None:
    vectors = [np.arange(length) + 100.0 * rank for rank in ALL]
    tickets = [three.begin(rank, vectors[rank], ALL, "m", weight=float(rank + 1), by=by) for rank in ALL]
    results = [ticket.wait(PATIENCE_SECONDS) for ticket in tickets]
    np.testing.assert_allclose(results[0].v, (vectors[0] + 2 * vectors[1] + 3 * vectors[2]) / 6, rtol=1e-6)
    assert [result.weight for result in results] == [6.0] * 3
    assert len({result.v.tobytes() for result in results}) == 1


def test_means_under_way_at_once_may_be_begun_in_different_orders(three: Workers) -> None:
    tags = ["a", "b", "c"]
    tickets = {}
    for rank in ALL:
        for tag in tags[rank:] + tags[:rank]:
            tickets[rank, tag] = three.begin(rank, [float(ord(tag) + rank)] * 40, ALL, tag)
    for tag in tags:
        assert [numbers(tickets[rank, tag]) for rank in ALL] == [[ord(tag) + 1.0] * 40] * 3


def test_of_means_that_nobody_has_begun_only_so_many_pieces_of_one_worker_are_kept(three: Workers) -> None:
    piece = Piece(v=np.zeros(1, np.float32), weight=1.0, length=1)
    for number in range(EARLY_MAX + 3):
        key = key_of(f"none {number}", ALL)
        three.transports[2].send(worker(0), Envelope(Kind.MEAN, piece, id_of(key, 0, 0)))
    first, begun = three.begin(0, [0.0], (0, 2), "m"), threading.Event()
    three.carriers[0]._todo.put(begun.set)  # behind "m", which begins on the carrier's thread
    assert begun.wait(PATIENCE_SECONDS)
    assert [numbers(ticket) for ticket in (first, three.begin(2, [2.0], (0, 2), "m"))] == [[1.0], [1.0]]
    assert three.refused[0] == [2] * 3


def test_some_of_the_workers_may_average_while_others_do(three: Workers) -> None:
    left, right = [three.begin(rank, [rank] * 5, (0, 1), "pair") for rank in (0, 1)]
    other = [three.begin(rank, [rank] * 5, (1, 2), "pair") for rank in (1, 2)]
    alone = three.begin(2, [7.0], (2,), "alone")
    assert [numbers(ticket)[0] for ticket in (left, right, *other, alone)] == [0.5, 0.5, 1.5, 1.5, 7.0]


def test_a_worker_alone_has_its_mean_at_once_whatever_its_carrier_is_at(three: Workers) -> None:
    go = threading.Event()
    three.carriers[2]._todo.put(lambda: go.wait(PATIENCE_SECONDS) and None)
    alone = three.begin(2, [7.0], (2,), "alone")
    assert alone.ready
    assert not go.is_set()
    go.set()
    assert numbers(alone) == [7.0]


def test_who_is_early_waits_for_the_last_one_and_no_more_is_under_way_than_allowed(three: Workers) -> None:
    early = [three.begin(rank, [rank] * 1000, ALL, "m") for rank in (0, 1)]
    three.begin(2, [2.0] * 1000, ALL, "m").wait(PATIENCE_SECONDS)
    assert [numbers(ticket) for ticket in early] == [[1.0] * 1000] * 2
    strips = -(-4 * 1000 // STRIP_BYTES)
    assert three.nodes[2]._memory.made < strips * 16 * 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("last_first", [(0, 1, 2), (0,), ()])
def test_strips_go_out_as_they_come_whatever_order_each_worker_has_them_in(
    three: Workers, last_first: tuple[int, ...]
) -> None:
    v = np.arange(320.0)  # 20 strips, several times those under way
    tickets = [three.carriers[rank].begin(Mean(v + rank, ALL, "m"), "ring") for rank in ALL]
    for rank in ALL:
        strips = [three.adders[rank].late.pop(0) for _ in range(20) if wait_for(three.adders[rank].late)]
        for there in reversed(strips) if rank in last_first else strips:
            there()
    assert [numbers(ticket) for ticket in tickets] == [list(v + 1)] * 3


def wait_for(late: list[Callable[[], None]]) -> bool:
    return wait_until(lambda: late)


def wait_until(holds: Callable[[], object]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds() and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    return bool(holds())


def test_whoever_waits_for_a_mean_is_woken_when_its_party_cannot_go_on(three: Workers) -> None:
    waiting = three.begin(0, [1.0] * 40, ALL, "m")
    three.nodes[0].stop(PeerLost("the coordinator is gone"))
    assert str(failure(waiting)) == "the coordinator is gone"
    assert str(failure(three.begin(0, [1.0] * 40, ALL, "n"))) == "the coordinator is gone"


def test_a_part_of_a_mean_of_which_nobody_knows_may_not_be_longer_than_a_strip(three: Workers) -> None:
    id = id_of(key_of("m", ALL), 3, 1)
    assert len(three.nodes[0].room_for(worker(1), Kind.MEAN, id, [STRIP_BYTES // 4])[0]) == STRIP_BYTES // 4
    with pytest.raises(ProtocolError, match="more than a strip"):
        three.nodes[0].room_for(worker(1), Kind.MEAN, id, [STRIP_BYTES // 4 + 1])


def test_a_party_that_takes_part_in_no_means_is_sent_none() -> None:
    hub = Hub()
    node = Node(hub.transport(worker(0)), NumpyMemory())
    with pytest.raises(ProtocolError, match="takes no part in"):
        node.deliver(worker(1), Envelope(Kind.MEAN, None))


def sent_by(three: Workers, rank: int, change: Callable[[Piece], None]) -> None:
    """Has worker `rank` change each piece that it sends."""
    send = three.transports[rank].send

    def lying(to: Party, envelope: Envelope) -> None:
        if isinstance(envelope.message, Piece):
            envelope.message = copy.copy(envelope.message)
            change(envelope.message)
        send(to, envelope)

    three.transports[rank].send = lying  # type: ignore[method-assign]


@pytest.mark.parametrize("by", PEERS)
def test_a_piece_that_is_not_finite_fails_the_mean_and_names_its_sender_alone(by: str) -> None:
    workers = Workers(3, checked=True)
    try:
        sent_by(workers, 2, lambda piece: setattr(piece, "v", piece.v * np.float32("nan")))
        waiting = [workers.begin(rank, [1.0] * 40, ALL, "m", by=by) for rank in ALL]
        assert wait_until(lambda: any(workers.refused))
        first = next(rank for rank in (0, 1) if workers.refused[rank])
        assert str(failure(waiting[first])) == "m: worker 2: a piece has NaN or infinity"
        assert {src for refused in workers.refused for src in refused} == {2}
    finally:
        workers.close()


def test_a_weight_beyond_that_of_all_workers_makes_nobody_elses_exceed_it() -> None:
    workers = Workers(3, most_weight=3.0)
    try:
        sent_by(workers, 2, lambda piece: setattr(piece, "weight", 3.0))
        seen: list[float] = []
        for rank in (0, 1):
            sent_by(workers, rank, lambda piece: seen.append(piece.weight))
        waiting = [workers.begin(rank, [1.0] * 40, ALL, "m") for rank in ALL]
        assert [numbers(ticket) for ticket in waiting] == [[1.0] * 40] * 3
        assert max(seen) == 3.0
    finally:
        workers.close()


def test_a_piece_that_was_dropped_fails_the_mean_and_those_that_follow(three: Workers) -> None:
    waiting = three.begin(0, [1.0] * 40, ALL, "m")
    what = Take(name="m", among=ALL, length=-1, schedule="ring", hosts=())
    three.carriers[0].dropped(worker(1), what)
    three.carriers[0].dropped(worker(2), Piece(v=np.zeros(0, np.float32), weight=1.0, length=-1))
    assert str(failure(waiting)).startswith("worker 2 sent a piece of a mean that cannot be")
    assert str(failure(three.begin(0, [1.0] * 40, ALL, "n"))).startswith("worker 2 sent a piece")


def test_who_has_not_left_stands_by_for_nobody(three: Workers) -> None:
    what = Take(name="m", among=ALL, length=40, schedule="ring", hosts=())
    three.transports[2].send(worker(0), Envelope(Kind.MEAN, what, 0))
    assert wait_until(lambda: three.refused[0] == [2])
    waiting = [three.begin(rank, [float(rank)] * 40, ALL, "m") for rank in ALL]
    assert [numbers(ticket) for ticket in waiting] == [[1.0] * 40] * 3
