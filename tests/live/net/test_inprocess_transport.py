"""Parties as threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.errors import PeerLost
from paceline.core.paramserver.gated_server import Push
from paceline.live.net.inprocess_transport import Hub, HubTransport
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import Recorder, happened, net_threads, take, vector


class Village:
    """A hub and those who live there."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.heard: dict[Party, Recorder] = {}
        self.at: dict[Party, HubTransport] = {}

    def settle(self, who: Party, handler: Recorder | None = None, **more: Any) -> HubTransport:
        self.heard[who] = handler or Recorder()
        self.at[who] = self.hub.transport(who, **more)
        self.at[who].open(self.heard[who])
        return self.at[who]

    def say(self, src: Party, to: Party, samples: int) -> None:
        self.at[src].send(to, Envelope(Kind.CONTROL, Total(samples=samples)))


@pytest.fixture
def village() -> Iterator[Village]:
    village = Village()
    village.settle(COORDINATOR)
    village.settle(worker(0))
    yield village
    for transport in village.at.values():
        transport.close()
    assert net_threads() == []


def test_messages_come_in_order_on_one_thread_of_the_receiver(village: Village) -> None:
    for n in range(200):
        village.say(worker(0), COORDINATOR, n)
    heard = village.heard[COORDINATOR]
    assert [heard.next() for _ in range(200)] == [(worker(0), Total(samples=n)) for n in range(200)]
    assert [thread.name for thread in heard.threads] == ["net of coordinator"]


def test_a_message_passes_by_reference_and_its_envelope_does_not(village: Village) -> None:
    sent = Envelope(Kind.CALL, Push(g=vector(1, 2), clock=1, samples=1), 4)
    village.at[worker(0)].send(COORDINATOR, sent)
    src, came = take(village.heard[COORDINATOR].delivered)
    assert src == worker(0)
    assert came.message is sent.message
    assert came is not sent
    assert (came.kind, came.id) == (Kind.CALL, 4)
    assert sent.sent_at > 0


def test_a_party_that_leaves_is_lost_to_everybody_else_once(village: Village) -> None:
    village.settle(server(0))
    village.at[worker(0)].close()
    village.at[worker(0)].close()
    for who in (COORDINATOR, server(0)):
        assert take(village.heard[who].losses) == (worker(0), "it left")
        assert village.heard[who].losses.empty()
    assert village.heard[worker(0)].losses.empty()
    with pytest.raises(PeerLost, match="coordinator has no connection to worker 0"):
        village.say(COORDINATOR, worker(0), 1)


def test_a_life_that_is_over_is_not_heard_and_a_later_one_is(village: Village) -> None:
    village.settle(server(0))
    old = village.at[worker(0)]
    village.at[server(0)].drop(worker(0), 0, "given up")
    assert take(village.heard[server(0)].losses) == (worker(0), "given up")
    assert take(village.heard[worker(0)].losses)[0] == server(0)
    with pytest.raises(PeerLost):
        old.send(server(0), Envelope(Kind.CONTROL, Total(samples=1)))
    village.settle(worker(0), incarnation=1)
    village.say(worker(0), server(0), 2)
    assert village.heard[server(0)].next() == (worker(0), Total(samples=2))
    assert village.at[server(0)].incarnation_of(worker(0)) == 1
    old.close()  # at last; its place is taken
    village.say(server(0), worker(0), 3)
    assert village.heard[worker(0)].next() == (server(0), Total(samples=3))
    assert village.heard[server(0)].losses.empty()


def test_one_that_hangs_is_lost_when_its_place_is_taken_and_once(village: Village) -> None:
    village.settle(server(0))
    hung, hears = village.at[worker(0)], village.heard[worker(0)]
    village.say(worker(0), server(0), 1)
    village.heard[server(0)].next()
    village.settle(worker(0), incarnation=1)
    for who in (COORDINATOR, server(0)):
        assert take(village.heard[who].losses) == (worker(0), "it came back")
    assert {take(hears.losses)[0] for _ in range(2)} == {COORDINATOR, server(0)}, "nobody answers its calls, either"
    with pytest.raises(PeerLost):
        hung.send(server(0), Envelope(Kind.CONTROL, Total(samples=1)))
    village.at[server(0)].drop(worker(0), 0, "it was declared lost")
    hung.close()
    village.say(worker(0), server(0), 2)
    assert village.heard[server(0)].next() == (worker(0), Total(samples=2))
    assert village.heard[server(0)].losses.empty()
    assert village.heard[worker(0)].losses.empty()


def test_one_who_has_not_moved_in_yet_hears_of_the_loss_when_it_does(village: Village) -> None:
    late = village.hub.transport(worker(1))
    village.at[worker(0)].close()
    village.heard[worker(1)], village.at[worker(1)] = Recorder(), late
    late.open(village.heard[worker(1)])
    assert take(village.heard[worker(1)].losses) == (worker(0), "it left")


def test_one_who_is_not_in_this_process_cannot_be_reached(village: Village) -> None:
    village.at[worker(0)].connect(COORDINATOR, "hub:coordinator")
    with pytest.raises(PeerLost, match="worker 0 cannot reach server 0: it is not in this process"):
        village.at[worker(0)].connect(server(0), "hub:server 0")
    assert village.at[worker(0)].address == "hub:worker 0"


def test_what_was_sent_before_the_receiver_opened_is_kept_for_it(village: Village) -> None:
    late = village.hub.transport(server(0))
    village.say(worker(0), server(0), 3)
    village.heard[server(0)], village.at[server(0)] = Recorder(), late
    late.open(village.heard[server(0)])
    assert village.heard[server(0)].next() == (worker(0), Total(samples=3))


class Busy(Recorder):
    """Sends itself the next message whenever one comes, so that its mailbox is never empty."""

    def __init__(self, transport: HubTransport) -> None:
        super().__init__()
        self.transport, self.enough = transport, threading.Event()

    def deliver(self, src: Party, envelope: Envelope) -> None:
        if not self.enough.is_set():
            self.transport.send(self.transport.me, envelope)


def test_a_timer_rings_though_messages_keep_coming(village: Village) -> None:
    transport = village.hub.transport(server(0))
    busy = Busy(transport)
    transport.open(busy)
    village.at[server(0)] = transport
    for _ in range(2):
        village.say(worker(0), server(0), 1)
    transport.call_later(0.01, busy.enough.set)
    assert happened(busy.enough)


def test_timers_ring_in_the_order_of_their_times(village: Village) -> None:
    heard = village.heard[worker(0)]
    for seconds, n in ((0.04, 3), (0.0, 1), (0.02, 2)):
        village.at[worker(0)].call_later(seconds, lambda n=n: heard.lost(worker(n), ""))  # type: ignore[misc]
    assert [take(heard.losses)[0].index for _ in range(3)] == [1, 2, 3]
    assert [thread.name for thread in heard.threads] == ["net of worker 0"]


class Clumsy(Recorder):
    def deliver(self, src: Party, envelope: Envelope) -> None:
        raise ZeroDivisionError("clumsy")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_escapes_the_handler_is_told_to_it_or_to_whom_was_named(village: Village, elsewhere: bool) -> None:
    named, handler = Recorder(), Clumsy()
    village.settle(server(0), handler, failed=named.failed if elsewhere else None)
    village.say(worker(0), server(0), 1)
    assert str(take((named if elsewhere else handler).failures)) == "clumsy"


def test_traffic_counts_the_bytes_of_vectors(village: Village) -> None:
    village.at[worker(0)].send(COORDINATOR, Envelope(Kind.CALL, Push(g=vector(1, 2, 3), clock=1, samples=1)))
    village.say(worker(0), COORDINATOR, 1)
    for _ in range(2):
        village.heard[COORDINATOR].next()
    assert village.at[worker(0)].traffic() == (12, 0)
    assert village.at[COORDINATOR].traffic() == (0, 12)
