"""The snapshot that lost servers are replaced from: one of all slices, or the one before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from paceline.core.errors import PeerLost
from paceline.engine.vector import Flat
from paceline.job import vault
from paceline.job.capturing import WEIGHTS, SliceState
from paceline.job.vault import Vault, _Snapshot
from paceline.live.hub import Hub
from paceline.live.node import Node
from paceline.live.party import COORDINATOR, server
from tests.live.doubles import NumpyMemory
from tests.live.stage import Behind

S0 = server(0)


def snapshot(number: float) -> _Snapshot:
    state = SliceState({WEIGHTS: Flat.wrap(torch.tensor([number]))}, {"version": number})
    return _Snapshot({0: state})


class Room:
    """A vault, and a server that looks at what it shows."""

    def __init__(self) -> None:
        hub = Hub()
        self.transports = [hub.transport(COORDINATOR), hub.transport(S0)]
        self.keeper, self.server = (Node(transport, NumpyMemory()) for transport in self.transports)
        for transport, node in zip(self.transports, (self.keeper, self.server), strict=True):
            transport.open(Behind(node))
        self.vault = Vault(self.transports[0], self.keeper, 0.001)

    def seen(self) -> float:
        return float(self.server.exhibit_of(COORDINATOR, f"snapshot/{WEIGHTS}", 0).v.value())

    def close(self) -> None:
        self.vault.close()
        for transport in self.transports:
            transport.close()


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.close()


def test_a_server_finds_the_newest(room: Room) -> None:
    assert not room.vault.available
    for number in (1.0, 2.0):
        room.vault._take(snapshot(number))
        assert room.seen() == number
    assert room.vault.available


def test_while_servers_read_one_it_stays(room: Room) -> None:
    room.vault._take(snapshot(1.0))
    room.vault.hold()
    room.vault._take(snapshot(2.0))
    assert room.seen() == 1.0
    room.vault.release()
    room.vault._take(snapshot(3.0))
    assert room.seen() == 3.0


def test_none_is_begun_while_a_server_is_being_replaced(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    def capture(ahead: int) -> _Snapshot:
        looked.set()
        return snapshot(1.0)

    monkeypatch.setattr(room.vault, "_capture", capture)
    monkeypatch.setattr(vault, "HELD_SECONDS", 0.001)
    room.vault.hold()
    room.vault._thread = threading.Thread(target=room.vault._run, daemon=True)
    room.vault._thread.start()
    assert not looked.wait(0.2)
    room.vault.release()
    assert looked.wait(15.0)


def test_one_that_a_lost_server_breaks_off_leaves_the_one_before(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = [snapshot(1.0), PeerLost("lost server 0"), PeerLost("lost server 0")]
    done = threading.Event()

    def capture(ahead: int) -> _Snapshot:
        if not outcomes:
            done.set()
            raise PeerLost("lost server 0")
        outcome = outcomes.pop(0)
        if isinstance(outcome, PeerLost):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    monkeypatch.setattr(room.vault, "_capture", capture)
    room.vault._thread = threading.Thread(target=room.vault._run, daemon=True)
    room.vault._thread.start()
    assert done.wait(15.0)
    assert room.seen() == 1.0
