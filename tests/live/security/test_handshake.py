"""Handshakes: both sides prove that they belong to the run, and whoever does not learns nothing that helps."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.errors import PeerLost
from paceline.core.paramserver.gated_server import Push
from paceline.core.parties import first_contact
from paceline.live.net import dialer
from paceline.live.net.dialer import Dialer
from paceline.live.protocol.transport import Envelope, Kind
from paceline.live.same_host import unix_socket
from paceline.live.same_host.shared_memory import Segments
from paceline.live.security.handshake import LISTENER, Challenge, Greeting, Proof
from tests.launch.process_tree import within
from tests.live.bare_transport import TOKEN, Someone, bytes_of, challenge_from, greeting_of, proof_by, prove
from tests.live.fakes import PATIENCE_SECONDS, take
from tests.live.net.test_tcp_transport import hung_up_on, still_answers

MODEL = np.arange(1, 5, dtype=np.float32)


class Squatter:
    """Listens where somebody else is expected, answers what `answer` makes of a greeting, and keeps all it receives."""

    def __init__(self, answer: Callable[[bytes], bytes | None], listener: socket.socket | None = None) -> None:
        """`answer`: None for hanging up at once."""
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self.heard = bytearray()
        self.calls = 0
        self._over = False
        self._thread = threading.Thread(target=self._run, name="squatter")
        self._thread.start()

    @property
    def address(self) -> str:
        if self._listener.family == socket.AF_UNIX:
            return f"127.0.0.1:1 {unix_socket.way_to(self._listener)}"
        return "127.0.0.1:{1}".format(*self._listener.getsockname())

    def _run(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            if self._over:
                sock.close()
                return
            self.calls += 1
            with sock, contextlib.suppress(ConnectionError):
                self._hear(sock)

    def _hear(self, sock: socket.socket) -> None:
        first = sock.recv(1 << 16)
        self.heard += first
        answer = self._answer(first)
        if answer is not None:
            sock.sendall(answer)
            while more := sock.recv(1 << 16):
                self.heard += more

    def close(self) -> None:
        self._over = True
        with socket.socket(self._listener.family) as last:
            last.connect(self._listener.getsockname())
            self._thread.join(PATIENCE_SECONDS)
        self._listener.close()


@pytest.fixture
def squat() -> Iterator[Callable[..., Squatter]]:
    made: list[Squatter] = []

    def make(*args: Any) -> Squatter:
        made.append(Squatter(*args))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_contact, "AGAIN_SECONDS", (0.01,))


@pytest.fixture
def host(someone: Callable[..., Someone]) -> Someone:
    return someone(COORDINATOR)


def a_challenge(proof: bytes = bytes(32), nonce: bytes = bytes(32)) -> bytes:
    return bytes_of(Challenge(nonce=nonce, proof=proof))


def of_another_run(first: bytes) -> bytes:
    """What a party of that name answers that has another token."""
    greeting = greeting_in(first)
    return a_challenge(proof_by(greeting, bytes(32), "the token of another run", LISTENER))


def greeting_in(frame: bytes) -> Greeting:
    nonce_at = frame.index(b"\xc4\x20") + 2
    return dataclasses.replace(greeting_of("worker 0", "server 0"), nonce=frame[nonce_at : nonce_at + 32])


ANSWERS: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "nothing": (lambda _: b"", "did not answer within 0.2 s"),
    "less than a frame": (lambda _: a_challenge()[:40], "did not answer within 0.2 s"),
    "an end": (lambda _: None, "closed the connection before it had proved who it is|reset by peer"),
    "what it was told": (lambda first: first, "no party of this run: handshake.Greeting instead of a challenge"),
    "a proof that it made up": (lambda _: a_challenge(), "does not have the token of this run"),
    "an empty proof": (lambda _: a_challenge(b""), "does not have the token of this run"),
    "a nonce that is too short": (lambda _: a_challenge(nonce=b""), "no party of this run"),
    "a proof of another run": (of_another_run, "does not have the token of this run"),
    "a welcome": (lambda _: bytes_of(Total(samples=1)), "no party of this run: control.Total instead of a challenge"),
    "another protocol": (lambda _: b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", "not a Paceline frame"),
    "another version": (lambda _: b"PACE\x01" + bytes(40), "protocol version 1, this side 2"),
    "a model": (lambda _: b"PACE\x02\x01" + bytes(14) + b"\x7f" + bytes(7), "the body has"),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_a_squatter_on_the_port_of_a_party_that_is_gone_sees_no_secret(
    what: str, someone: Callable[..., Someone], squat: Callable[..., Squatter], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, complaint = ANSWERS[what]
    gone, caller = someone(server(0)), someone(worker(0))
    caller.transport.connect(server(0), gone.transport.address)
    push = Envelope(Kind.CALL, Push(g=MODEL, clock=1, samples=1), 7)
    caller.transport.send(server(0), push)
    gone.heard.next()
    address = gone.transport.address
    gone.transport.close()
    take(caller.heard.losses)
    if "did not answer" in complaint:
        monkeypatch.setattr(dialer, "ANSWER_SECONDS", 0.2)

    squatter = squat(answer, socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))))
    with pytest.raises(PeerLost, match=f"worker 0 cannot reach server 0 at {address}: .*({complaint})"):
        caller.transport.connect(server(0), address)
    with pytest.raises(PeerLost, match="no connection to server 0"):
        caller.transport.send(server(0), push)
    assert within(PATIENCE_SECONDS, lambda: b"worker 0" in squatter.heard), "it was called, and recorded"
    assert only_greetings(bytes(squatter.heard))
    assert TOKEN.encode() not in squatter.heard
    assert MODEL.tobytes() not in squatter.heard


def only_greetings(heard: bytes) -> bool:
    size = len(bytes_of(greeting_of("worker 0", "server 0")))
    frames = [heard[at : at + size] for at in range(0, len(heard), size)]
    return all(frame == bytes_of(greeting_in(frame)) for frame in frames)


def test_a_squatter_at_the_unix_socket_sees_no_secret_and_no_memory(
    someone: Callable[..., Someone], squat: Callable[..., Squatter]
) -> None:
    segments = Segments()
    caller = someone(worker(0), segments=segments)
    listener = unix_socket.listen(8)
    listener.setblocking(True)
    squatter = squat(lambda _: a_challenge(), listener)
    with pytest.raises(PeerLost, match="does not have the token of this run"):
        caller.transport.connect(server(0), squatter.address)
    assert only_greetings(bytes(squatter.heard))
    assert squatter.calls == 1, "nor is another way tried after somebody was found who lies"


def test_further_streams_are_no_less_careful_than_the_first(
    host: Someone, someone: Callable[..., Someone], squat: Callable[..., Squatter], monkeypatch: pytest.MonkeyPatch
) -> None:
    squatter, over_tcp, ways = squat(lambda _: a_challenge()), Dialer._over_tcp, [host.transport.address]

    def called(self: Dialer, party: Party, address: str) -> socket.socket:
        return over_tcp(self, party, ways.pop() if ways else squatter.address)

    monkeypatch.setattr(Dialer, "_over_tcp", called)
    caller = someone(worker(0), streams=2)
    with pytest.raises(PeerLost, match="does not have the token of this run"):
        caller.transport.connect(COORDINATOR, host.transport.address)
    assert squatter.calls == 1
    assert TOKEN.encode() not in squatter.heard


def test_nobody_beyond_this_machine_is_called_without_tls(
    host: Someone, someone: Callable[..., Someone], monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = someone(worker(0))
    monkeypatch.setattr(dialer, "stays_here", lambda _: False)
    with pytest.raises(PeerLost, match="beyond this machine, and without TLS nobody is called there"):
        caller.transport.connect(COORDINATOR, host.transport.address)
    assert host.transport.traffic() == (0, 0)


# ---- what was recorded, reflected or changed on its way -------------------------------------------------------
@pytest.mark.parametrize("while_it_lasts", [True, False])
def test_a_recorded_handshake_that_is_played_again_is_refused(
    host: Someone, someone: Callable[..., Someone], while_it_lasts: bool
) -> None:
    with host.call() as sock:
        recorded = prove(sock, greeting_of("worker 0", "coordinator"))
        sock.sendall(command := bytes_of(Total(samples=1)))
        assert host.heard.next() == (worker(0), Total(samples=1))
        if while_it_lasts:
            assert hung_up_on(host.call(recorded + command))
    if not while_it_lasts:
        assert take(host.heard.losses)[0] == worker(0)
        assert hung_up_on(host.call(recorded + command))
    assert still_answers(host, someone), "and that was the first thing it heard"


def test_a_recorded_challenge_that_is_played_again_is_refused(
    host: Someone, someone: Callable[..., Someone], squat: Callable[..., Squatter]
) -> None:
    with host.call(bytes_of(greeting_of("worker 0", "coordinator"))) as sock:
        recorded = sock.recv(1 << 16)
    caller = someone(worker(0))
    with pytest.raises(PeerLost, match="does not have the token of this run"):
        caller.transport.connect(COORDINATOR, squat(lambda _: recorded).address)


def test_the_proof_of_a_listener_is_none_of_a_caller(host: Someone, someone: Callable[..., Someone]) -> None:
    with host.call(bytes_of(greeting_of("worker 0", "coordinator"))) as sock:
        challenge = challenge_from(sock)
        sock.sendall(bytes_of(Proof(proof=challenge.proof)))
        assert hung_up_on(sock)
    assert still_answers(host, someone)


def test_a_greeting_cannot_be_answered_by_its_own_sender(
    someone: Callable[..., Someone], squat: Callable[..., Squatter]
) -> None:
    """Reflection: whoever is called as server 0 asks the caller itself for the proof."""
    caller = someone(worker(0))

    def reflected(first: bytes) -> bytes | None:
        with caller.call(first) as sock:
            return sock.recv(1 << 16) or None

    with pytest.raises(PeerLost, match="closed the connection before it had proved who it is"):
        caller.transport.connect(server(0), squat(reflected).address)


@pytest.mark.parametrize(
    "change",
    [
        {"party": "worker 1"},
        {"party": "server 0"},
        {"lane": True},
        {"incarnation": 1},
        {"nonce": bytes(32)},
    ],
    ids=str,
)
def test_nothing_of_a_greeting_can_be_changed_on_its_way(
    change: dict[str, Any], host: Someone, someone: Callable[..., Someone]
) -> None:
    said = greeting_of("worker 0", "coordinator")
    with host.call(bytes_of(dataclasses.replace(said, **change))) as sock:
        challenge = challenge_from(sock)
        assert challenge.proof != proof_by(said, challenge.nonce, TOKEN, LISTENER), "so the caller hangs up"
        sock.sendall(bytes_of(Proof(proof=proof_by(said, challenge.nonce, TOKEN))))
        assert hung_up_on(sock)
    assert still_answers(host, someone)


def test_two_parties_of_which_one_has_another_token_do_not_meet(host: Someone, someone: Callable[..., Someone]) -> None:
    stranger = someone(worker(0), token="the token of another run")
    with pytest.raises(PeerLost, match="another program or another run has taken the address"):
        stranger.transport.connect(COORDINATOR, host.transport.address)
    assert still_answers(host, someone)


def test_without_a_token_there_is_no_transport() -> None:
    with pytest.raises(ValueError, match="without a token"):
        Someone(worker(0), token="")


# ---- incarnations ---------------------------------------------------------------------------------------------------
def test_streams_of_an_earlier_life_do_not_become_those_of_a_later_one(
    host: Someone, someone: Callable[..., Someone]
) -> None:
    with host.greeted(lane=True) as early:
        host.transport.call_later(0.0, partial(host.heard.lost, worker(7), "it was read"))
        take(host.heard.losses)
        with host.greeted(incarnation=1, raw=bytes_of(Total(samples=1))):
            assert host.heard.next() == (worker(0), Total(samples=1))
            assert hung_up_on(early)
            assert len(host.transport._connections[worker(0)].lanes) == 0
    assert take(host.heard.losses)[0] == worker(0)


def test_one_that_was_evicted_before_it_was_answered_calls_again(
    host: Someone, someone: Callable[..., Someone], squat: Callable[..., Squatter], monkeypatch: pytest.MonkeyPatch
) -> None:
    evicting, over_tcp = squat(lambda _: None), Dialer._over_tcp
    ways = [evicting.address]

    def called(self: Dialer, party: Party, address: str) -> socket.socket:
        return over_tcp(self, party, ways.pop() if ways else address)

    monkeypatch.setattr(Dialer, "_over_tcp", called)
    caller = someone(worker(0))
    caller.transport.connect(COORDINATOR, host.transport.address)
    caller.say(COORDINATOR, 5)
    assert host.heard.next() == (worker(0), Total(samples=5))
    assert evicting.calls == 1


def test_who_was_given_up_during_the_handshake_is_not_connected_after_it(
    host: Someone, someone: Callable[..., Someone], monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, call_once = someone(worker(0)), Dialer._call_once

    def called(self: Dialer, party: Party, address: str, lane: bool) -> socket.socket:
        sock = call_once(self, party, address, lane)
        caller.transport.drop(COORDINATOR, 0, "it was given up")
        return sock

    monkeypatch.setattr(Dialer, "_call_once", called)
    with pytest.raises(PeerLost, match="takes no part any more"):
        caller.transport.connect(COORDINATOR, host.transport.address)
