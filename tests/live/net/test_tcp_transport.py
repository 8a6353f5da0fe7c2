"""Parties over TCP: who is let in, and what becomes of those who are not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination.control_messages import Go, Hello, Total
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.errors import PeerLost
from paceline.core.paramserver.gated_server import Push
from paceline.live.net import tcp_transport
from paceline.live.net.striping import HEAD
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from paceline.live.security.handshake import Challenge, Greeting, Proof
from tests.live.bare_transport import TOKEN, Someone, greeting_of
from tests.live.fakes import (
    PATIENCE_SECONDS,
    NumpyMemory,
    Recorder,
    happened,
    take,
    vector,
)
from tests.live.protocol.test_frames import HOSTILE, bytes_of, header, prefix


def greeting(party: str = "worker 0", to: str = "coordinator") -> bytes:
    """Only the first frame of a handshake."""
    return bytes_of(Envelope(Kind.CONTROL, greeting_of(party, to)))


def frame(kind: Kind, head: bytes, body_bytes: int = 0) -> bytes:
    return prefix(kind=kind, header=len(head), body=body_bytes) + head


def hung_up_on(sock: socket.socket) -> bool:
    """Did the other side close, whatever it said before?"""
    with sock:
        try:
            while sock.recv(4096):
                pass
            return True
        except ConnectionError:  # it did not care to read all that we said
            return True


def still_answers(host: Someone, someone: Callable[..., Someone]) -> bool:
    """Does a party that belongs here still get through?"""
    friend = someone(worker(9))
    friend.transport.connect(COORDINATOR, host.transport.address)
    friend.say(COORDINATOR, 99)
    return host.heard.next() == (worker(9), Total(samples=99))


STRANGERS = {
    "who is no party": greeting(party="pirate 1"),
    "with a rank that is no number": greeting(party="worker one"),
    "who calls somebody else": greeting(to="server 0"),
    "with a nonce that is none": bytes_of(
        Envelope(Kind.CONTROL, Greeting(party="worker 0", to="coordinator", nonce=b"0"))
    ),
    "who proves before it has greeted": bytes_of(Envelope(Kind.CONTROL, Proof(proof=bytes(32)))),
    "who greets twice": greeting() + greeting(),
    "who begins with something else": bytes_of(Envelope(Kind.CONTROL, Total(samples=1))),
    "who sends a body": bytes_of(Envelope(Kind.CALL, Push(g=vector(1), clock=1, samples=1))),
    "who sends a body without bytes": bytes_of(Envelope(Kind.CALL, Push(g=vector(), clock=1, samples=1))),
    "who announces 2**63 bytes": frame(Kind.CALL, header("clocked.Push", [2**61], [1, 1]), 2**63),
    "who speaks another protocol": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "who sends what is no message": frame(Kind.CONTROL, b"\x93\xa2\xff\xfe\x90\x90"),
    **{f"who sends {what}": frame(Kind.CONTROL, head) for what, (head, _) in HOSTILE.items()},
}


@pytest.mark.parametrize("which", STRANGERS)
def test_a_stranger_is_refused_and_harms_nobody(which: str, host: Someone, someone: Callable[..., Someone]) -> None:
    assert hung_up_on(host.call(STRANGERS[which]))
    assert still_answers(host, someone)
    assert host.heard.rooms == []
    assert host.heard.losses.empty()


@pytest.mark.parametrize("token", ["guess", TOKEN[:-1], "törken"])
def test_a_stranger_with_another_token_is_refused(token: str, host: Someone, someone: Callable[..., Someone]) -> None:
    assert hung_up_on(host.greeted(token=token))
    assert still_answers(host, someone)
    assert host.heard.losses.empty()


def test_what_follows_a_refused_proof_is_not_heard(host: Someone, someone: Callable[..., Someone]) -> None:
    command = bytes_of(Envelope(Kind.CONTROL, Go()))
    assert hung_up_on(host.greeted(token="guess", raw=command))
    assert hung_up_on(host.call(command + greeting()))
    assert hung_up_on(host.call(greeting() + command))
    assert still_answers(host, someone)  # and that was the first thing it heard


def test_what_follows_a_good_proof_in_the_same_packet_is_heard(host: Someone) -> None:
    vectors = bytes_of(Envelope(Kind.CALL, Push(g=vector(1, 2), clock=1, samples=1), 7))
    with host.greeted(raw=vectors + bytes_of(Envelope(Kind.CONTROL, Go()))):
        assert host.heard.next()[1].g.tolist() == [1, 2]
        assert host.heard.next() == (worker(0), Go())


def test_one_who_never_says_who_it_is_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, host: Someone, someone: Callable[..., Someone]
) -> None:
    ends, later = list[Callable[[], None]](), host.transport._loop.call_later

    def noted(seconds: float, action: Callable[[], None]) -> None:
        ends.append(action) if seconds == tcp_transport.GREETING_SECONDS else later(seconds, action)

    monkeypatch.setattr(host.transport._loop, "call_later", noted)
    silent, begun, friend = host.call(), host.call(greeting()[:10]), someone(worker(1))
    friend.transport.connect(COORDINATOR, host.transport.address)
    friend.say(COORDINATOR, 1)
    host.heard.next()
    assert len(ends) == 3, "each of them has so long to say who it is"
    for end in ends:
        host.transport.call_later(0.0, end)
    assert hung_up_on(silent)
    assert hung_up_on(begun)
    friend.say(COORDINATOR, 2)  # which has said so, and is still there
    assert host.heard.next() == (worker(1), Total(samples=2))


def test_too_many_strangers_do_not_fill_the_house(
    monkeypatch: pytest.MonkeyPatch, host: Someone, someone: Callable[..., Someone]
) -> None:
    monkeypatch.setattr(tcp_transport, "STRANGERS_MAX", 2)
    first, second, third = host.call(), host.call(), host.call()
    assert hung_up_on(first), "the one who has been silent for longest"
    assert still_answers(host, someone), "who belongs here says so at once"
    assert hung_up_on(second)
    assert third.fileno() >= 0
    with host.greeted("worker 5", raw=bytes_of(Envelope(Kind.CONTROL, Total(samples=5)))):
        assert host.heard.next() == (worker(5), Total(samples=5))
    third.close()


def test_running_out_of_descriptors_does_not_end_it(
    host: Someone, someone: Callable[..., Someone], failures_to_accept: list[OSError]
) -> None:
    assert still_answers(host, someone)
    assert failures_to_accept == []


def test_a_second_connection_of_one_party_is_refused_and_the_first_goes_on(
    host: Someone, someone: Callable[..., Someone]
) -> None:
    first, second = someone(worker(0)), someone(worker(0))
    first.transport.connect(COORDINATOR, host.transport.address)
    first.say(COORDINATOR, 1)
    assert host.heard.next() == (worker(0), Total(samples=1))
    second.transport.connect(COORDINATOR, host.transport.address)
    assert take(second.heard.losses)[0] == COORDINATOR
    first.say(COORDINATOR, 2)
    host.say(worker(0), 3)
    assert host.heard.next() == (worker(0), Total(samples=2))
    assert first.heard.next() == (COORDINATOR, Total(samples=3))
    assert host.heard.losses.empty()


@pytest.mark.parametrize("attempt", range(5))
def test_two_that_call_each_other_at_the_same_moment_hear_each_other(
    attempt: int, someone: Callable[..., Someone], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers that come back at once do: each reads the other's state over the connection it has called."""
    pair, both = (someone(worker(4)), someone(worker(5))), threading.Barrier(2, timeout=PATIENCE_SECONDS)
    for one in pair:
        call = one.transport._dialer.reach

        def reach(party: Party, address: str, *, lane: bool = False, call: Callable[..., Any] = call) -> socket.socket:
            both.wait()  # each has seen by now that there is no connection yet
            sock = call(party, address, lane=lane)
            both.wait()
            return sock

        monkeypatch.setattr(one.transport._dialer, "reach", reach)
    addresses = [one.transport.address for one in pair]
    calls = [
        threading.Thread(target=one.transport.connect, args=(worker(5 - n), addresses[1 - n]))
        for n, one in enumerate(pair)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join(PATIENCE_SECONDS)
    for n in range(20):
        pair[0].say(worker(5), n)
        pair[1].say(worker(4), n)
    assert [pair[1].heard.next() for _ in range(20)] == [(worker(4), Total(samples=n)) for n in range(20)]
    assert [pair[0].heard.next() for _ in range(20)] == [(worker(5), Total(samples=n)) for n in range(20)]
    assert pair[0].heard.losses.empty()
    assert pair[1].heard.losses.empty()
    pair[0].transport.close()
    assert take(pair[1].heard.losses)[0] == worker(4)
    assert pair[1].heard.losses.empty(), "a loss is told once"


def test_both_may_speak_over_the_one_connection(host: Someone, someone: Callable[..., Someone]) -> None:
    other = someone(server(1))
    other.transport.connect(COORDINATOR, host.transport.address)
    for n in range(50):
        other.say(COORDINATOR, n)
    assert [host.heard.next() for _ in range(50)] == [(server(1), Total(samples=n)) for n in range(50)]
    for n in range(50):
        host.say(server(1), n)
    assert [other.heard.next() for _ in range(50)] == [(COORDINATOR, Total(samples=n)) for n in range(50)]
    assert len(host.heard.threads) == 1


def test_traffic_counts_every_byte_that_went_over(host: Someone, someone: Callable[..., Someone]) -> None:
    other = someone(worker(0))
    assert other.transport.traffic() == (0, 0)
    other.transport.connect(COORDINATOR, host.transport.address)
    push = Envelope(Kind.CALL, Push(g=vector(1, 2, 3), clock=1, samples=1))
    other.transport.send(COORDINATOR, push)
    host.heard.next()
    host.say(worker(0), 1)
    other.heard.next()
    proof, challenge = Proof(proof=bytes(32)), Challenge(nonce=bytes(32), proof=bytes(32))
    up = len(greeting()) + len(bytes_of(Envelope(Kind.CONTROL, proof))) + len(bytes_of(push))
    down = len(bytes_of(Envelope(Kind.CONTROL, challenge))) + len(bytes_of(Envelope(Kind.CONTROL, Total(samples=1))))
    assert other.transport.traffic() == (up, down)
    assert host.transport.traffic() == (down, up)
    other.transport.close()
    take(host.heard.losses)
    assert host.transport.traffic() == (down, up)
    assert other.transport.traffic() == (up, down)


def test_closing_sends_what_is_queued_first(host: Someone, someone: Callable[..., Someone]) -> None:
    leaver = someone(worker(0))
    leaver.transport.connect(COORDINATOR, host.transport.address)
    g = np.arange(4 << 20, dtype=np.float32)  # 16 MB
    leaver.transport.send(COORDINATOR, Envelope(Kind.TELL, Push(g=g, clock=1, samples=1)))
    leaver.transport.send(COORDINATOR, Envelope(Kind.TELL, Total(samples=5)))
    leaver.transport.close()
    assert np.array_equal(host.heard.next()[1].g, g)
    assert host.heard.next() == (worker(0), Total(samples=5))
    assert take(host.heard.losses)[0] == worker(0)
    assert leaver.heard.losses.empty(), "told of a close that it asked for"


def test_a_loss_is_told_once_and_the_party_may_come_back(host: Someone, someone: Callable[..., Someone]) -> None:
    for n in range(2):
        other = someone(worker(0))
        other.transport.connect(COORDINATOR, host.transport.address)
        other.say(COORDINATOR, n)
        assert host.heard.next() == (worker(0), Total(samples=n))
        other.transport.close()
        assert take(host.heard.losses) == (worker(0), "the other side closed the connection")
        with pytest.raises(PeerLost):
            host.say(worker(0), 1)
    assert host.heard.losses.empty()


def test_one_that_hangs_up_at_once_is_lost_once_every_time(host: Someone, someone: Callable[..., Someone]) -> None:
    """Its end may be the first that is read of it, on another thread than the one that calls."""
    guest = someone(worker(0))
    host.transport.call_later(0.0, lambda: host.transport.drop(worker(0), 0, "given up"))
    for _ in range(50):
        guest.transport.connect(COORDINATOR, host.transport.address)
        assert take(guest.heard.losses)[0] == COORDINATOR
    assert guest.heard.losses.empty()


def test_a_life_that_is_over_is_not_let_in_and_a_later_one_is(host: Someone, someone: Callable[..., Someone]) -> None:
    first = someone(worker(0))
    first.transport.connect(COORDINATOR, host.transport.address)
    first.say(COORDINATOR, 1)
    assert host.heard.next() == (worker(0), Total(samples=1))
    host.transport.call_later(0.0, lambda: host.transport.drop(worker(0), 0, "given up"))
    assert take(host.heard.losses) == (worker(0), "given up")
    assert take(first.heard.losses)[0] == COORDINATOR
    first.transport.connect(COORDINATOR, host.transport.address)  # the zombie calls again
    assert take(first.heard.losses)[0] == COORDINATOR
    second = someone(worker(0), incarnation=1)
    second.transport.connect(COORDINATOR, host.transport.address)
    second.say(COORDINATOR, 2)
    assert host.heard.next() == (worker(0), Total(samples=2))


def test_a_later_life_ends_the_one_before_it(host: Someone, someone: Callable[..., Someone]) -> None:
    incarnations = [someone(worker(0), incarnation=incarnation) for incarnation in (0, 1)]
    for incarnation in incarnations:
        incarnation.transport.connect(COORDINATOR, host.transport.address)
        incarnation.say(COORDINATOR, 1)
        host.heard.next()
    assert take(host.heard.losses) == (worker(0), "it came back")
    assert take(incarnations[0].heard.losses)[0] == COORDINATOR
    host.say(worker(0), 5)
    assert incarnations[1].heard.next() == (COORDINATOR, Total(samples=5))


def test_the_end_of_an_incarnation_is_told_before_the_next_one_is_heard(someone: Callable[..., Someone]) -> None:
    told: list[tuple[str, int]] = []

    class Tells(Recorder):
        def deliver(self, src: Party, envelope: Envelope) -> None:
            told.append(("heard", of.transport.incarnation_of(src)))
            super().deliver(src, envelope)

        def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
            told.append(("lost", 0))

    of = someone(worker(1), heard=Tells())
    for incarnation in (0, 1):
        caller = someone(worker(0), incarnation=incarnation)
        caller.transport.connect(worker(1), of.transport.address)
        caller.say(worker(1), 1)
        of.heard.next()
    assert told == [("heard", 0), ("lost", 0), ("heard", 1)]


def test_the_incarnation_of_a_party_that_is_called_is_that_which_was_called(someone: Callable[..., Someone]) -> None:
    called, caller = someone(worker(0), incarnation=2), someone(worker(1))
    caller.transport.connect(worker(0), called.transport.address, 2)
    caller.say(worker(0), 1)
    called.heard.next()
    called.say(worker(1), 1)
    caller.heard.next()
    assert caller.transport.incarnation_of(worker(0)) == 2


def test_a_party_that_knows_the_token_may_not_send_more_than_the_limit(
    host: Someone, someone: Callable[..., Someone]
) -> None:
    small = someone(server(0), body_bytes_max=100)
    with small.greeted() as sock:
        sock.sendall(bytes_of(Envelope(Kind.CALL, Push(g=np.zeros(26, np.float32), clock=1, samples=1))))
        assert hung_up_on(sock)
    assert take(small.heard.losses) == (worker(0), "the body has 104 bytes, the limit here is 100")
    assert small.heard.rooms == []


class Clumsy(Recorder):
    def deliver(self, src: Party, envelope: Envelope) -> None:
        raise ZeroDivisionError("clumsy")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_escapes_the_handler_is_told_to_it_or_to_whom_was_named(host: Someone, elsewhere: bool) -> None:
    named, handler = Recorder(), Clumsy()
    clumsy = TcpTransport(server(0), TOKEN, NumpyMemory(), failed=named.failed if elsewhere else None)
    clumsy.open(handler)
    host.transport.connect(server(0), clumsy.address)
    host.say(server(0), 1)
    assert str(take((named if elsewhere else handler).failures)) == "clumsy"
    clumsy.close()
    assert take(host.heard.losses)[0] == server(0)


def test_a_timer_runs_on_the_thread_that_delivers(host: Someone, someone: Callable[..., Someone]) -> None:
    host.transport.call_later(0.01, lambda: host.heard.lost(worker(7), "a timer"))
    assert take(host.heard.losses) == (worker(7), "a timer")
    still_answers(host, someone)
    assert len(host.heard.threads) == 1


def test_a_transport_that_was_never_opened_closes_without_a_trace() -> None:
    transport = TcpTransport(worker(0), TOKEN, NumpyMemory())
    assert transport.address.startswith("127.0.0.1:")
    transport.close()
    transport.close()


def test_it_listens_on_the_loopback_address_only_unless_told_otherwise(host: Someone) -> None:
    assert host.transport.address.split(":")[0] == "127.0.0.1"


def test_a_hello_carries_what_it_was_given(host: Someone, someone: Callable[..., Someone]) -> None:
    other = someone(worker(3))
    other.transport.connect(COORDINATOR, host.transport.address)
    hello = Hello(address=other.transport.address, pid=1, host="ü", device="cpu")
    other.transport.send(COORDINATOR, Envelope(Kind.CONTROL, hello))
    assert host.heard.next() == (worker(3), hello)
    assert len(bytes_of(Envelope(Kind.CONTROL, hello))) < frames.HEADER_BYTES_MAX


def big(n: int) -> Envelope:
    return Envelope(Kind.TELL, Push(g=np.arange(n, n + (1 << 19), dtype=np.float32), clock=n, samples=1))


def test_large_vectors_go_over_as_many_streams_as_asked_for_and_come_in_order(
    host: Someone, someone: Callable[..., Someone]
) -> None:
    other = someone(worker(0), streams=3)
    other.transport.connect(COORDINATOR, host.transport.address)
    for n in range(12):
        other.transport.send(COORDINATOR, big(n))
        assert np.array_equal(host.heard.next()[1].g, big(n).message.g)
    for n in range(12):
        host.transport.send(worker(0), big(n))
    assert [other.heard.next()[1].clock for _ in range(12)] == list(range(12))
    assert happened(host.transport._connections[worker(0)].idle), "what has left is counted a moment later"
    sent, received = other.transport.traffic()
    assert min(sent, received) > 12 * 4 * (1 << 19)
    assert host.transport.traffic() == (received, sent)
    lanes = host.transport._connections[worker(0)].lanes
    assert len(lanes) == 3
    assert sum(sent for sent, _ in lanes) > 12 * 4 * (1 << 19)


def test_a_stream_that_calls_before_its_connection_waits_for_it(host: Someone) -> None:
    with host.greeted(lane=True) as lane:
        still_waits(host)
        with host.greeted():
            assert lane.recv(HEAD.size) == HEAD.pack(0, 0, 0)
        assert take(host.heard.losses)[0] == worker(0)
        assert hung_up_on(lane)


def still_waits(host: Someone) -> None:
    """Until all that has come was looked at: nobody was let in."""
    assert host.heard.delivered.empty()
    host.transport.call_later(0.0, lambda: host.heard.lost(worker(7), "a turn later"))
    assert take(host.heard.losses) == (worker(7), "a turn later")


def test_a_stream_without_the_token_is_refused(host: Someone, someone: Callable[..., Someone]) -> None:
    friend = someone(worker(0))
    friend.transport.connect(COORDINATOR, host.transport.address)
    assert hung_up_on(host.greeted(lane=True, token="guess"))
    friend.say(COORDINATOR, 1)
    assert host.heard.next() == (worker(0), Total(samples=1))
