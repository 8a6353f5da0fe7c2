"""Shares of weights and mass: given, kept, handed over and lost."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.effects import Call, Tell, Train
from paceline.core.local.push_sum import QUANTUM, Holder, Returned
from paceline.schemes.gosgd import ReadyForShare
from tests.core.local.gossip import hear, share, worker


def test_less_than_a_quantum_is_not_given() -> None:
    role = worker(workers=2)
    role.weight = 3 * QUANTUM
    (told,) = hear(role, 1, ReadyForShare())
    assert (told.message.weight, role.weight) == (QUANTUM, 2 * QUANTUM)
    hear(role, 1, ReadyForShare())
    assert hear(role, 1, ReadyForShare()) == []
    assert role.weight == QUANTUM


def test_messages_wait_until_the_next_step_and_are_averaged_by_weight() -> None:
    role = worker(workers=2, p=0.0)
    hear(role, 1, share(4.0, 0.25))
    hear(role, 1, share(1.0, 0.25))
    assert role.w == [0.0]
    assert role.model() == ([1.25], 1.0)
    wanted = next(role.run())
    assert isinstance(wanted, Train)
    assert wanted.x == [1.25]
    assert role.weight == 1.0


def test_one_that_leaves_hands_over_all_it_has_and_sends_back_what_still_comes() -> None:
    role = worker()
    hear(role, 1, share(2.0, 1 / 3))
    (last,) = role.leave(0.0)
    assert isinstance(last, Tell)
    assert last.message.w == pytest.approx([1.0])
    assert last.message.weight == pytest.approx(2 / 3)
    assert role.model()[1] == 0
    (back,) = hear(role, 2, share(5.0, 0.1))
    assert (back.to, back.message.weight) == (2, 0.1)
    assert isinstance(back.message, Returned)


def test_an_heir_that_has_left_itself_is_replaced_and_the_last_one_keeps_what_there_is() -> None:
    role = worker()
    (last,) = role.leave(0.0)
    refused = Returned(w=last.message.w, weight=last.message.weight)
    (again,) = hear(role, last.to, refused)
    assert {last.to, again.to} == {1, 2}
    assert hear(role, again.to, refused) == []
    assert role.model()[1] == pytest.approx(1 / 3)


def test_who_kept_its_mass_because_all_had_left_hands_it_to_the_next_that_comes() -> None:
    role = worker()
    for rank in (1, 2):
        assert list(role.on_worker_left(0.0, rank)) == []
    assert list(role.leave(0.0)) == []
    kept = role.model()[1]
    assert kept > 0
    (given,) = role.on_worker_joined(0.0, 2)
    assert (given.to, given.message.weight) == (2, kept)
    assert role.model()[1] == 0
    assert list(role.on_worker_joined(0.0, 1)) == []


def test_when_all_mass_is_lost_the_first_of_those_that_ask_for_some_begins_anew() -> None:
    def poor(me: int) -> tuple[Holder, Any]:
        role = worker(me)
        role.load_join_state({"away": []})
        return role, role.run()

    first, loop = poor(0)
    asked = set()
    for _ in range(100):
        effect = next(loop) if not asked else loop.send(None)
        if isinstance(effect, Train):
            break
        asked.add(effect.to)
        assert first.weight == 0.0
        hear(first, effect.to, share(0.0, 0.0))
    assert asked == {1, 2}, "all others were asked"
    assert first.weight == 1.0
    second, loop = poor(1)
    next(loop)
    for _ in range(50):
        assert isinstance(loop.send(None), Call), "worker 0 will begin, and give it a share"
    assert second.weight == 0.0


def test_who_goes_may_have_left_its_mass_to_somebody_so_all_are_asked_again() -> None:
    role = worker(0)
    role.load_join_state({"away": []})
    role.poor = {1, 2}
    list(role.on_worker_left(0.0, 2))
    assert isinstance(next(role.run()), Call)
