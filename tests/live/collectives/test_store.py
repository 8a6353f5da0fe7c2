"""Where workers meet for torch.distributed: what a key has, who waits for it, and how every wait ends."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination.party import COORDINATOR, Party
from paceline.core.errors import PeerLost, ProtocolError, TimedOut
from paceline.live.collectives import store
from paceline.live.collectives.store import Add, Forget, Found, Get, Put, Rendezvous, Vain
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.scripted_parties import W0, W1


class Post:
    """Keeps what is sent; time passes when a test says so."""

    me = COORDINATOR

    def __init__(self) -> None:
        self.sent: list[tuple[Party, int, Any]] = []
        self.timers = 0

    def send(self, to: Party, envelope: Envelope) -> None:
        assert envelope.kind is Kind.REPLY
        self.sent.append((to, envelope.id, envelope.message))

    def tick_later(self, seconds: float) -> None:
        assert seconds == store.TICK_SECONDS
        self.timers += 1


class Place:
    """Both workers' questions, numbered from 1."""

    def __init__(self) -> None:
        self.post: Any = Post()
        self.rendezvous = Rendezvous(self.post, [W0, W1], self.post.tick_later)
        self.rendezvous.hosts.update({W0: "heron", W1: "ibis"})
        self._asked = 0

    def ask(self, who: Party, question: Any) -> list[tuple[Party, int, Any]]:
        """Whatever is answered to anybody because of it."""
        self._asked += 1
        self.rendezvous.deliver(who, Envelope(Kind.CALL, question, self._asked))
        return self.answers()

    def answers(self) -> list[tuple[Party, int, Any]]:
        sent, self.post.sent = self.post.sent, []
        return list(sent)

    def now(self, key: str) -> bytes | None:
        ((_, _, found),) = self.ask(W0, Get(key=key))
        value: bytes | None = found.value
        return value

    def pass_s(self, seconds: float) -> None:
        for _ in range(round(seconds / store.TICK_SECONDS)):
            timers, self.post.timers = self.post.timers, 0
            for _ in range(timers):
                self.rendezvous.tick()


@pytest.fixture
def place() -> Place:
    return Place()


def test_what_one_has_put_another_gets(place: Place) -> None:
    assert place.ask(W0, Put(key="0/0", value=b"\x00here")) == [(W0, 1, Found(value=b"\x00here"))]
    assert place.ask(W1, Get(key="0/0", seconds=5.0)) == [(W1, 2, Found(value=b"\x00here"))]
    assert [place.now("0/0"), place.now("0/1")] == [b"\x00here", None]


def test_who_asks_before_is_answered_then_and_nobody_else_is(place: Place) -> None:
    assert place.ask(W1, Get(key="a", seconds=5.0)) == []
    assert place.ask(W0, Put(key="b", value=b"")) == [(W0, 2, Found(value=b""))]
    assert place.ask(W0, Put(key="a", value=b"1")) == [(W0, 3, Found(value=b"1")), (W1, 1, Found(value=b"1"))]
    place.pass_s(10.0)
    assert (place.answers(), place.post.timers) == ([], 0)


def test_numbers_add_up_and_a_value_is_exchanged_only_for_the_one_expected(place: Place) -> None:
    sums = [place.ask(who, Add(key="n", amount=by))[0][2].value for who, by in ((W0, 2), (W1, 3), (W0, -6))]
    assert sums == [b"2", b"5", b"-1"]

    def put(value: bytes, instead_of: bytes) -> bytes | None:
        now: bytes | None = place.ask(W0, Put(key="c", value=value, instead_of=instead_of))[0][2].value
        return now

    assert [put(b"x", b"y"), put(b"x", b""), put(b"z", b"y"), put(b"z", b"x")] == [None, b"x", b"x", b"z"]
    assert place.ask(W1, Forget(key="c"))[0][2] == Found(value=b"z")
    assert place.now("c") is None


def test_a_lost_worker_ends_all_waiting_with_its_rank_and_host(place: Place) -> None:
    place.ask(W0, Get(key="0/1", seconds=600.0))
    place.rendezvous.lost(W1, "connection reset")
    ((to, number, vain),) = place.answers()
    assert (to, number, str(vain.error(COORDINATOR))) == (W0, 1, "lost worker 1 on ibis: connection reset")
    assert isinstance(vain.error(COORDINATOR), PeerLost)
    assert place.ask(W0, Get(key="0/1", seconds=600.0)) == [(W0, 2, vain)], "nor does a later one wait"


def test_a_wait_that_is_too_long_names_those_who_have_not_come(place: Place) -> None:
    place.ask(W0, Put(key="0/0", value=b"x"))
    place.ask(W0, Get(key="0/1", seconds=3.0))
    place.pass_s(2.5)
    assert place.answers() == []
    place.pass_s(0.5)
    ((_, _, vain),) = place.answers()
    late = vain.error(COORDINATOR)
    assert isinstance(late, TimedOut)
    assert str(late) == "waited 3 s for worker 1 on ibis to meet for torch.distributed"


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (Put(key="k" * 513, value=b""), "a key of 513 characters"),
        (Put(key="k", value=bytes(32 * 1024 + 1)), "32769 bytes: too long"),
        (Put(key="one more", value=b""), "brings too much: there are 3 keys"),
        (Put(key="k", value=bytes(103)), "brings too much"),
        (Add(key="text", amount=1), "worker 0 adds to text, which is no number"),
    ],
)
def test_what_is_too_much_is_refused_and_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, question: Any, why: str
) -> None:
    monkeypatch.setattr(store, "KEYS_MAX", 3)
    monkeypatch.setattr(store, "TOTAL_BYTES_MAX", 104)
    for key in ("text", "k", "n"):
        place.ask(W0, Put(key=key, value=b"x"))
    with pytest.raises(ProtocolError, match=why):
        place.ask(W0, question)
    assert [place.now(key) for key in ("text", "k", "n", "one more")] == [b"x", b"x", b"x", None]
    place.ask(W0, Put(key="k", value=bytes(102)))  # and what there is room for is taken


def test_one_worker_cannot_leave_any_number_of_waits_behind(place: Place) -> None:
    for number in range(store.WAITS_MAX):
        place.ask(W0, Get(key=f"{number}", seconds=600.0))
    with pytest.raises(ProtocolError, match="worker 0 waits for more than 16 keys"):
        place.ask(W0, Get(key="x", seconds=600.0))
    assert place.ask(W1, Get(key="x", seconds=600.0)) == []


def test_a_coordinator_answers_and_ends_the_waits_of_a_run_that_fails(companies: Any) -> None:
    company = companies(servers=0, allreduce="gloo")
    company.hello()
    company.say(W0, Get(key="0/1", seconds=600.0), Kind.CALL)
    company.say(W1, Put(key="0/0", value=b"x"), Kind.CALL)
    assert company.hears(W1) == Found(value=b"x")
    company.kill(W1)
    vain = company.hears(W0)
    assert isinstance(vain, Vain)
    assert vain.why.startswith("lost worker 1 on here: ")
    assert company.told("failed")[0] == W1
