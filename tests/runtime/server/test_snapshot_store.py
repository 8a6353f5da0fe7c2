"""The snapshot that lost servers are replaced from: one of all slices, or the one before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from paceline.core.coordination.control_messages import Capture
from paceline.core.coordination.party import COORDINATOR, Party, server
from paceline.core.errors import PeerLost
from paceline.core.fault_tolerance import snapshots
from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.fault_tolerance.snapshots import SnapshotPause
from paceline.core.paramserver.gated_server import Push
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import SNAPSHOT, VERSION, Mixed, fetch, kept, of_capture, publish_state
from paceline.runtime.checkpointing.disk_buffer import unspooled
from paceline.runtime.checkpointing.slice_capture import NOTHING, WEIGHTS, Captures
from paceline.runtime.server.snapshot_store import SnapshotStore
from tests.live.fakes import NumpyMemory
from tests.live.node_fixture import Behind

S0 = server(0)


def take(store: SnapshotStore, *states: SliceState) -> None:
    """Takes a snapshot of these slices, as if they had just been fetched."""
    wanted = store._rounds.begin(range(len(states)), 0)
    for number, state in enumerate(states):
        store._take(number, of_capture(state, wanted.number))


def slice_with(number: float) -> SliceState:
    return SliceState({WEIGHTS: Flat.wrap(torch.tensor([number]))}, {"version": number})


class Room:
    """A store, and a server that looks at what it shows."""

    def __init__(self) -> None:
        hub = Hub()
        self.transports = [hub.transport(COORDINATOR), hub.transport(S0)]
        self.keeper, self.server = (Node(transport, NumpyMemory()) for transport in self.transports)
        for transport, node in zip(self.transports, (self.keeper, self.server), strict=True):
            transport.open(Behind(node))
        self.snapshots = SnapshotStore(self.transports[0], self.keeper, 0.001)

    def seen(self) -> float:
        return float(self.server.read_published_of(COORDINATOR, f"snapshot/{WEIGHTS}", 0).v.value())

    def close(self) -> None:
        self.snapshots.close()
        for transport in self.transports:
            transport.close()


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.close()


def test_a_server_finds_the_newest(room: Room) -> None:
    assert not room.snapshots.available
    for number in (1.0, 2.0):
        take(room.snapshots, slice_with(number))
        assert room.seen() == number
    assert room.snapshots.available


def test_each_slice_is_given_back_with_all_that_it_had(room: Room) -> None:
    w, momentum = Flat.wrap(torch.tensor([1.0])), Flat.wrap(torch.tensor([2.0]))
    updated = SliceState({WEIGHTS: w, "momentum": momentum}, {"version": 1})
    states = {0: SliceState({WEIGHTS: w}, {"version": 0}), 1: updated, 2: SliceState({WEIGHTS: w}, {"version": 0})}
    take(room.snapshots, *states.values())
    for numbers in ([0, 1, 2], [1, 0]):
        fetched = fetch(room.server, COORDINATOR, numbers, SNAPSHOT)
        assert [sorted(state.vectors) for state in fetched] == [sorted(states[number].vectors) for number in numbers]
    assert float(fetched[0].vectors["momentum"].value()) == 2.0


def test_a_slice_that_was_not_updated_yet_takes_nothing_from_the_others(room: Room) -> None:
    rules = [make_rule(OptimizerRecipe(lr=0.1, momentum=0.9)) for _ in range(2)]
    w = Flat.wrap(torch.ones(3))
    hosted = [
        ServedSlice(3, make("asp", {}).Server(None, RoleContext(me=at, workers=(0,), w=w, update=rules[at])))
        for at in range(2)
    ]
    rules[1](w, w, 8)
    Captures(room.server, hosted, rules, SNAPSHOT).want(0)
    states = fetch(room.keeper, S0, [0, 1], SNAPSHOT)
    assert [sorted(state.vectors) for state in states] == [["weights"], ["momentum", "weights"]]


def test_a_snapshot_is_of_one_capture_and_has_all_slices_as_they_were_then(room: Room) -> None:
    """What was kept for the snapshot before is in no later one."""
    rules = [make_rule(OptimizerRecipe(lr=0.1)) for _ in range(2)]
    hosted = [
        ServedSlice(
            3,
            make("asp", {}).Server(
                None, RoleContext(me=at, workers=(0,), w=Flat.wrap(torch.ones(3)), update=rules[at])
            ),
        )
        for at in range(2)
    ]
    captures = Captures(room.server, hosted, rules, SNAPSHOT)
    room.snapshots._homes = ((0, 0), (0, 1))
    room.snapshots._tell_all = lambda order: captures.want(  # type: ignore[method-assign]
        min(order.version, 0), order.number
    )  # at once, whichever version is asked for
    for clock in (1, 2, 3):
        room.snapshots._capture()
        assert room.snapshots._rounds.newest is not None
        found = [unspooled(state.vectors[WEIGHTS]).value() for state in room.snapshots._rounds.newest.values()]
        for of, w in zip(hosted, found, strict=True):
            assert of.role is not None
            assert torch.equal(w, of.role.model()[0].value())
            list(of.role.on(0.0, 0, Push(g=Flat.wrap(torch.ones(3)), clock=clock, samples=8)))


class Shown:
    """Notes what is published."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __setitem__(self, what: str, provider: object) -> None:
        self.names.append(what)

    def withdraw(self, names: object) -> None:
        """Does nothing: what was published stays noted."""


def test_a_snapshot_is_no_later_than_the_copies(room: Room) -> None:
    """All might return to it after a server was replaced from a copy that is older."""
    acts: list[Any] = []
    room.server.after_replicated = acts.append
    w, rule = Flat.wrap(torch.ones(3)), make_rule(OptimizerRecipe(lr=0.1))
    role = make("asp", {}).Server(None, RoleContext(me=0, workers=(0,), w=w, update=rule))
    captures = Captures(room.server, [ServedSlice(3, role)], [rule], SNAPSHOT)
    shown: list[str] = []
    room.server.published = Shown(shown)  # type: ignore[assignment]
    captures.want(0, number=1)
    captures.want(0, number=2)
    first, second = acts
    first()
    assert shown == [], "another capture was begun since"
    second()
    assert kept(SNAPSHOT, STATE) in shown


def test_slices_of_two_captures_make_no_snapshot_and_are_not_restored(room: Room) -> None:
    numbers = [1, 1]
    w = Flat.wrap(torch.tensor([1.0]))
    room.server.published[VERSION] = lambda at: (NOTHING, 0.0)
    room.server.published[f"snapshot/{STATE}"] = lambda at: publish_state({"capture": numbers[at]}, [WEIGHTS], NOTHING)
    room.server.published[f"snapshot/{WEIGHTS}"] = lambda at: w
    room.snapshots._homes = ((0, 0), (0, 1))
    room.snapshots._tell_all = lambda order: None  # type: ignore[method-assign]
    room.snapshots._capture()
    before = room.snapshots._rounds.newest
    assert before is not None
    for capture, mixed in ((2, [2, 1]), (3, [2, 3]), (4, [1, 1])):
        numbers[:] = mixed
        room.snapshots._capture()
        assert room.snapshots._rounds._number == capture
    assert room.snapshots._rounds.newest is before
    numbers[:] = [1, 2]
    with pytest.raises(Mixed, match="captures 1, 2"):
        fetch(room.keeper, S0, [0, 1], SNAPSHOT)


def test_while_servers_read_one_it_stays(room: Room) -> None:
    take(room.snapshots, slice_with(1.0))
    wanted = room.snapshots._rounds.begin([0], 0)
    room.snapshots.hold()
    room.snapshots._take(0, of_capture(slice_with(2.0), wanted.number))
    assert room.seen() == 1.0
    room.snapshots.release()
    take(room.snapshots, slice_with(3.0))
    assert room.seen() == 3.0


def test_none_is_begun_while_a_server_is_being_replaced(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    monkeypatch.setattr(room.snapshots, "_capture", looked.set)
    monkeypatch.setattr(snapshots, "HELD_SECONDS", 0.001)
    room.snapshots.hold()
    room.snapshots._thread = threading.Thread(target=room.snapshots._run, daemon=True)
    room.snapshots._thread.start()
    assert not looked.wait(0.2)
    room.snapshots.release()
    assert looked.wait(15.0)


def test_none_is_begun_where_a_server_was_lost_while_they_were_asked_for_their_versions(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers are restored from the newest one meanwhile, slice by slice."""
    take(room.snapshots, slice_with(1.0))
    ordered: list[Capture] = []

    def version_of(who: Party, name: str) -> float:
        room.snapshots.hold()
        return 0.0

    monkeypatch.setattr(room.keeper, "version_of", version_of)
    monkeypatch.setattr(room.snapshots, "_tell_all", ordered.append)
    room.snapshots._homes = ((0, 0),)
    assert room.snapshots._round() == SnapshotPause(snapshots.HELD_SECONDS)
    assert not ordered
    assert room.seen() == 1.0


def test_one_that_a_lost_server_breaks_off_leaves_the_one_before(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [1.0, None, None]
    done = threading.Event()

    def capture() -> None:
        if not outcomes:
            done.set()
        elif (outcome := outcomes.pop(0)) is not None:
            take(room.snapshots, slice_with(outcome))
            return
        raise PeerLost("lost server 0")

    monkeypatch.setattr(room.snapshots, "_capture", capture)
    room.snapshots._thread = threading.Thread(target=room.snapshots._run, daemon=True)
    room.snapshots._thread.start()
    assert done.wait(15.0)
    assert room.seen() == 1.0
