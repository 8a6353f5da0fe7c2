"""A message channel with a codec by difference, whose receiver is lost and comes back."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination import party
from paceline.core.errors import PeerLost
from paceline.live.protocol.channel import MessageChannel
from paceline.live.protocol.transport import Envelope, Kind
from tests.codec.pipeline.stages import numbers, room, stage
from tests.codec.pipeline.test_stage import MEMORY, Model

CODEC, PEER = "topk(ratio=0.1)", party.worker(1)


class Wire:
    """A transport that keeps what is sent while the peer is `there`."""

    me = party.worker(0)

    def __init__(self) -> None:
        self.there = True
        self.sent: list[Any] = []

    def send(self, to: party.Party, envelope: Envelope) -> None:
        if not self.there:
            raise PeerLost("no connection")
        self.sent.append(envelope.message)


def channel() -> tuple[MessageChannel, Wire]:
    wire: Any = Wire()
    made = MessageChannel(wire, MEMORY)
    made.use(stage(CODEC))
    return made, wire


def send(by: MessageChannel, seed: int) -> None:
    by.encode_and_send(PEER, Envelope(Kind.TELL, Model(w=numbers(seed))), 0)


def taken_by_the_next_incarnation(message: Any) -> Any:
    return stage(CODEC).incoming("worker 0", message, room, from_server=False).w


def test_what_could_not_be_sent_is_not_held_by_the_next_incarnation() -> None:
    """A worker often hears that another is lost by what it cannot send."""
    out, wire = channel()
    send(out, 0)
    wire.there = False
    out.lost(PEER)
    with pytest.raises(PeerLost):
        send(out, 1)
    wire.there = True
    send(out, 2)
    assert np.array_equal(taken_by_the_next_incarnation(wire.sent[-1]), numbers(2))


def test_a_loss_while_a_difference_is_encoded_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    out, wire = channel()
    send(out, 0)
    codec = type(out.stage._sends)
    encode = codec.encode
    loses = threading.Thread(target=out.lost, args=(PEER,))

    def lost_meanwhile(self: Any, x: Any, residual: Any = None) -> Any:
        data = encode(self, x, residual)
        loses.start()
        loses.join(0.2)  # it may have to wait
        return data

    with monkeypatch.context() as patched:
        patched.setattr(codec, "encode", lost_meanwhile)
        send(out, 1)
    loses.join()
    send(out, 2)
    assert np.array_equal(taken_by_the_next_incarnation(wire.sent[-1]), numbers(2))
