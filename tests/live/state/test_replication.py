"""What a server answers is on the next server first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from paceline.core.coordination.party import Party, server, worker
from paceline.core.effects import Reply, Tell
from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.replication import Kept, SliceState
from paceline.core.role import Role
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.published_state import PRESENCE
from paceline.live.state.replication import COMPLETE, SliceReplication
from tests.launch.process_tree import within
from tests.live.fakes import PATIENCE_SECONDS, in_background, vector
from tests.live.node_fixture import PLACE, Ask, Said, Stage

S0, S1, W0 = server(0), server(1), worker(0)


class Adding(Role):
    """Adds what comes, and answers with the sum."""

    def __init__(self) -> None:
        super().__init__(None, PLACE)
        self.w, self.version = vector(0.0, 0.0), 0

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        self.w = self.w + message.v
        self.version += 1
        yield Reply(src, Said(v=self.w, n=self.version))


class Server:
    """One slice, and copies of the slice of the other one."""

    def __init__(self, stage: Stage, me: Party, other: Party) -> None:
        self.node, self.role = stage.node(me), Adding()
        self.copies = SliceReplication(
            self.node,
            PLACE,
            before=other.index,
            after=other.index,
            counts=(1, 1, 1),
            nothing=vector(),
            state_of=lambda at: SliceState({"w": self.role.w}, {"version": self.role.version}),
            mark_of=lambda at: self.role.version,
        )
        self.node.host([ServedSlice(10, self.role), ServedSlice(10, self.copies)])
        self.node.holds[self.role] = lambda role, effects: self.copies.hold(0, role, effects)


@pytest.fixture
def pair(stage: Stage) -> tuple[Server, Server]:
    return Server(stage, S0, S1), Server(stage, S1, S0)


def asks(stage: Stage, times: int) -> Any:
    """A worker that asks server 0 so often, one after the other; the numbers of its answers."""
    node = stage.node(W0)
    asked = [node.ask(S0, 0, Ask(v=vector(1.0, 2.0), n=0), "an answer") for _ in range(times)]
    return in_background(lambda: [pending.wait(PATIENCE_SECONDS).n for pending in asked])


def test_the_newest_state_is_on_the_other_server_when_the_answer_comes(stage: Stage, pair: Any) -> None:
    one, other = pair
    one.copies.begin()
    assert asks(stage, 3)() == [1, 2, 3]
    shown = one.node.read_published_of(S1, "copy/w", 0)
    assert list(shown.v) == [3.0, 6.0]
    assert '"version": 3' in one.node.read_published_of(S1, "copy/state", 0).facts
    assert one.node.version_of(S1, COMPLETE) == 1.0
    assert other.node.version_of(S0, COMPLETE) == 0.0


def test_no_answer_goes_before_its_state_is_kept(stage: Stage, pair: Any) -> None:
    one, other = pair
    one.copies.begin()
    with other.node._lock:  # the other one is busy
        answers = asks(stage, 2)
        assert within(PATIENCE_SECONDS, lambda: len(one.copies._waiting[0]) == 2)
    assert answers() == [1, 2]


def test_nobody_waits_for_a_keeper_that_is_lost(stage: Stage, pair: Any) -> None:
    one, other = pair
    one.copies.begin()
    with other.node._lock:
        answers = asks(stage, 2)
        assert within(PATIENCE_SECONDS, lambda: one.role.version == 2)
        one.node.between_messages(lambda: one.copies.lost(1))
        assert answers() == [1, 2]


def test_copies_come_from_the_neighbour_alone(stage: Stage, pair: Any) -> None:
    one, _ = pair
    with pytest.raises(ProtocolError, match="server 5 sent Kept"):
        list(one.copies.on(0.0, 5, Kept(slice=0, number=1)))


def test_a_newcomer_is_known_to_the_copy_before_that_is_confirmed(pair: Any) -> None:
    one, other = pair
    one.copies.begin()
    kept, at_once = threading.Event(), threading.Event()
    with other.node._lock:  # the other one is busy
        one.role.version += 1
        one.node.between_messages(lambda: one.copies.hold(0, one.role, ()))
        one.node.between_messages(lambda: one.copies.after_replicated(kept.set))
        assert not kept.is_set()
    assert kept.wait(PATIENCE_SECONDS)
    one.node.between_messages(lambda: one.copies.lost(1))
    one.node.between_messages(lambda: one.copies.after_replicated(at_once.set))
    assert at_once.is_set(), "nobody is there who could keep it"


def test_what_waits_for_a_copy_waits_for_the_first_one(pair: Any) -> None:
    one, _ = pair
    kept = threading.Event()
    one.node.between_messages(lambda: one.copies.after_replicated(kept.set))
    assert not kept.is_set(), "a replacement has what nobody has a copy of"
    one.copies.begin()
    assert kept.wait(PATIENCE_SECONDS)


def test_a_server_says_that_it_has_taken_all_when_its_copy_has_it(stage: Stage, pair: Any) -> None:
    one, other = pair
    one.node.after_replicated = lambda act: one.node.between_messages(lambda: one.copies.after_replicated(act))
    one.copies.begin()
    node = stage.node(worker(1))
    with other.node._lock:  # the other one is busy
        answers = asks(stage, 1)
        assert within(PATIENCE_SECONDS, lambda: one.role.version == 1)
        taken = in_background(lambda: node.await_taken([S0]))
        node.read_published_of(S0, PRESENCE, 0)  # whether it is there does not depend on a copy
        assert within(PATIENCE_SECONDS, lambda: len(one.copies._acts) == 1)
    assert answers() == [1]
    taken()


def test_what_was_held_for_a_worker_is_not_for_the_life_that_comes_after_it(pair: Any) -> None:
    one, other = pair
    one.copies.begin()
    with other.node._lock:
        one.role.version += 1
        held = [Reply(0, Said(v=vector(1.0), n=1)), Reply(1, Said(v=vector(1.0), n=1))]
        one.node.between_messages(lambda: one.copies.hold(0, one.role, held))
        one.node.gone(0)
        assert [of.to for _, _, effects in one.copies._waiting[0] for of in effects] == [1]
        one.copies._waiting[0].clear()  # nobody has asked
