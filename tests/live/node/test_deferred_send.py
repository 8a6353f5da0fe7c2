"""Messages leave as their vectors come, and answers may be taken before all of them is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.core.coordination.party import Party, server
from paceline.core.errors import PeerLost, ProtocolError, Stopped, TimedOut
from paceline.core.message import message
from paceline.core.vector import Vector
from paceline.engine.vectors.chunked import Chunks, RopeMemory
from paceline.engine.vectors.flat import Flat
from paceline.live.node.deferred_send import DeferredSends
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope, Kind


@message("test_streams.Load")
class Load:
    v: Vector
    n: int


class Post:
    """Keeps what is sent: to whom, for which slice, and its number."""

    me = server(9)

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, int]] = []
        self.lost: set[Party] = set()
        self.encoded: list[int] = []

    def send(self, to: Party, envelope: Envelope) -> None:
        if to in self.lost:
            raise PeerLost(f"no way to {to}")
        self.sent.append((to.index, envelope.slice, envelope.message.n))

    def encode_and_send(self, to: Party, envelope: Envelope, part: int) -> None:
        self.encoded.append(part)
        self.send(to, envelope)


def arriving(length: int = 6) -> Chunks:
    return Chunks(list(range(length + 1)), home=Flat(torch.arange(float(length))), timeout_s=0.02)


def load(v: Any, n: int, slice: int = 0) -> Envelope:
    return Envelope(Kind.CALL, Load(v=v, n=n), n, slice)


def test_slices_leave_when_they_are_there_whatever_their_order() -> None:
    post, parts = Post(), arriving()
    streams = DeferredSends(post)
    for k in range(3):
        streams.send(server(0), load(parts.vector[2 * k : 2 * k + 2], n=k, slice=k))
    assert post.sent == []
    for part in (5, 4, 0, 3, 1):
        parts.put(part)
    assert post.sent == [(0, 2, 2), (0, 0, 0)]
    parts.put(2)
    assert post.sent == [(0, 2, 2), (0, 0, 0), (0, 1, 1)]


def test_nothing_overtakes_on_the_way_to_one_slice_and_others_do_not_wait() -> None:
    post, parts = Post(), arriving()
    streams = DeferredSends(post)
    whole = Flat(torch.zeros(2))
    streams.send(server(0), load(parts.vector[:2], n=1))
    streams.send(server(0), load(whole, n=2))
    streams.send(server(0), load(whole, n=3, slice=1))
    streams.send(server(1), load(whole, n=4))
    assert post.sent == [(0, 1, 3), (1, 0, 4)]
    parts.put(0)
    parts.put(1)
    assert post.sent[2:] == [(0, 0, 1), (0, 0, 2)]
    streams.send(server(0), load(whole, n=5))
    assert post.sent[4:] == [(0, 0, 5)]


def test_messages_of_the_scheme_are_encoded_when_they_leave_and_others_never() -> None:
    post, parts = Post(), arriving()
    streams = DeferredSends(post)
    streams.send(server(0), load(parts.vector[:1], n=1), 7)
    streams.send(server(0), load(parts.vector[:1], n=2))
    assert (post.sent, post.encoded, streams.empty) == ([], [], False)
    parts.put(0)
    assert (post.sent, post.encoded, streams.empty) == ([(0, 0, 1), (0, 0, 2)], [7], True)


def test_what_never_comes_is_dropped_and_holds_nobody_up() -> None:
    post, parts = Post(), arriving()
    streams = DeferredSends(post)
    streams.send(server(0), load(parts.vector, n=1))
    streams.send(server(0), load(Flat(torch.zeros(2)), n=2))
    parts.fail(PeerLost("gone"))
    assert post.sent == [(0, 0, 2)]


def test_somebody_who_was_lost_meanwhile_is_no_error_of_the_one_who_brings() -> None:
    post, parts = Post(), arriving(1)
    streams = DeferredSends(post)
    streams.send(server(0), load(parts.vector, n=1))
    post.lost.add(server(0))
    parts.put(0)
    assert post.sent == []
    with pytest.raises(PeerLost):
        streams.send(server(0), load(Flat(torch.zeros(1)), n=2))


# ---- answers ---------------------------------------------------------------------------------------------
def asked(*edges: int) -> PendingReply:
    return PendingReply("the answer", len(edges) - 1, RopeMemory(), edges=edges, timeout_s=0.02)


def test_the_first_answer_is_taken_for_all_and_the_others_fill_it() -> None:
    pending = asked(0, 2, 5)
    pending.put(1, Load(v=Flat(torch.ones(3)), n=7), 0.0)
    answer = pending.wait(0.0)
    assert (answer.n, len(answer.v)) == (7, 5)
    assert answer.v[2:].value().tolist() == [1, 1, 1]
    with pytest.raises(TimedOut, match="the answer"):
        answer.v[:1].value()
    pending.put(0, Load(v=Flat(torch.zeros(2)), n=8), 0.0)
    assert answer.v.value().tolist() == [0, 0, 1, 1, 1]
    assert pending.seconds_waited >= 0.02


def test_who_reads_what_will_not_come_hears_why() -> None:
    pending = asked(0, 2, 5)
    pending.put(0, Load(v=Flat(torch.zeros(2)), n=1), 0.0)
    answer = pending.wait(0.0)
    pending.fail(Stopped("steps"))
    assert answer.v[:2].value().tolist() == [0, 0]
    with pytest.raises(Stopped):
        answer.v.value()


def test_vectors_of_another_length_than_the_slice_are_waited_for_together() -> None:
    pending = asked(0, 2, 5)
    pending.put(0, Load(v=Flat(torch.zeros(1)), n=3), 0.0)
    with pytest.raises(TimedOut):
        pending.wait(0.0)
    pending.put(1, Load(v=Flat(torch.ones(1)), n=2), 0.0)
    answer = pending.wait(0.0)
    assert (answer.n, answer.v.value().tolist()) == (2, [0, 1])


def test_an_answer_that_does_not_fit_the_first_is_refused() -> None:
    pending = asked(0, 2, 5)
    pending.put(0, Load(v=Flat(torch.zeros(2)), n=3), 0.0)
    with pytest.raises(ProtocolError, match="the answer: part 1 .* has 3 elements, not 4"):
        pending.put(1, Load(v=Flat(torch.ones(4)), n=2), 0.0)
