"""Means over the connections between workers: several at once, among any of them, with those who leave or are lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.core.collective import PEERS
from paceline.core.effects import Mean
from paceline.core.errors import PacelineError, PeerLost, ProtocolError
from paceline.live.collectives.peer_backend import PeerCarrier, from_id, id_of, key_of
from paceline.live.net.inprocess_transport import Hub, HubTransport
from paceline.live.node.node import Node
from paceline.live.party import worker
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory
from tests.live.node_fixture import Behind

STRIP_BYTES = 64
TWO_HOSTS = ((0, 2), (1,))


class NumpyAdder:
    """Vectors of float64 arrive strip by strip, when the test takes an action from `late`."""

    def __init__(self) -> None:
        self.late: list[Callable[[], None]] = []

    def blend(self, mine: Any, theirs: Any, share: float, into: Any) -> None:
        into[:] = mine + np.float32(share) * (theirs - mine)

    def copy(self, v: Any, into: Any) -> None:
        into[:] = v

    def readable(self, v: Any) -> Any:
        return v

    def when(self, v: Any, action: Callable[[], None]) -> None:
        action() if v.dtype == np.float32 else self.late.append(action)


class Workers:
    """So many workers on a hub that know how to carry means, and nothing else."""

    def __init__(self, count: int) -> None:
        self.hub = Hub()
        self.transports: list[HubTransport] = []
        self.nodes: list[Node] = []
        self.carriers: list[PeerCarrier] = []
        self.adders: list[NumpyAdder] = []
        for rank in range(count):
            transport = self.hub.transport(worker(rank))
            node = Node(transport, NumpyMemory(), timeout_s=PATIENCE_SECONDS)
            self.adders.append(NumpyAdder())
            node.peers = PeerCarrier(transport, NumpyMemory(), self.adders[-1], strip_bytes=STRIP_BYTES)
            transport.open(Behind(node))
            self.transports.append(transport)
            self.nodes.append(node)
            self.carriers.append(node.peers)

    def begin(
        self, rank: int, v: Any, among: tuple[int, ...], tag: str, weight: float = 1.0, by: str = "ring"
    ) -> PendingReply:
        hosts = TWO_HOSTS if by == "hierarchical" else ()
        return self.carriers[rank].begin(Mean(np.array(v, np.float32), among, tag, weight), by, hosts)

    def close(self) -> None:
        for carrier, transport in zip(self.carriers, self.transports, strict=True):
            carrier.close()
            transport.close()


@pytest.fixture
def three() -> Iterator[Workers]:
    workers = Workers(3)
    yield workers
    workers.close()


def numbers(pending: PendingReply) -> list[float]:
    return list(map(float, pending.wait(PATIENCE_SECONDS).v))


def failure(pending: PendingReply) -> PacelineError:
    with pytest.raises(PacelineError) as error:
        pending.wait(PATIENCE_SECONDS)
    return error.value


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


def test_some_of_the_workers_may_average_while_others_do(three: Workers) -> None:
    left, right = [three.begin(rank, [rank] * 5, (0, 1), "pair") for rank in (0, 1)]
    other = [three.begin(rank, [rank] * 5, (1, 2), "pair") for rank in (1, 2)]
    alone = three.begin(2, [7.0], (2,), "alone")
    assert [numbers(ticket)[0] for ticket in (left, right, *other, alone)] == [0.5, 0.5, 1.5, 1.5, 7.0]


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
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not late and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    return bool(late)


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


def test_an_id_says_which_mean_which_strip_and_which_step() -> None:
    key = key_of("bsp/7", ALL)
    assert from_id(id_of(key, 65535, 16383)) == (key, 65535, 16383)
    assert len({key_of("bsp/7", ALL), key_of("bsp/8", ALL), key_of("bsp/7", (0, 1))}) == 3
    assert id_of(key, 65535, 16383) < 1 << 64
