from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.core.effects import Call, Tell, Train, Trained
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.local.push_sum import QUANTUM, Holder, Returned, Share
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes.gosgd import Offer, ReadyForShare
from paceline.sim import LocalSteps, Simulation
from tests.conformance.test_sim import watch

TRAINED = Trained(np.ones(1), 1, 1.0)


def worker(me: int = 0, workers: int = 3, **parameters: Any) -> Holder:
    place = RoleContext(me=me, workers=tuple(range(workers)), w=np.zeros(1), update=lambda w, g, n: w - g)
    role = make("gosgd", parameters).worker(0)(make("gosgd", parameters), place)
    assert isinstance(role, Holder)
    return role


def share(w: float, weight: float) -> Share:
    return Share(w=np.array([w]), weight=weight)


def hear(role: Holder, src: int, message: Any) -> list[Any]:
    return list(role.on(0.0, src, message))


def test_a_message_carries_half_of_the_weight_once_its_receiver_is_ready() -> None:
    role = worker(workers=2, p=1.0)
    loop = role.run()
    assert isinstance(next(loop), Train)
    assert loop.send(TRAINED) == Tell(1, Offer())
    assert role.weight == 0.5
    (told,) = hear(role, 1, ReadyForShare())
    assert (told.to, told.message.weight, role.weight) == (1, 0.25, 0.25)


def test_nobody_is_offered_a_second_share_before_it_was_ready_for_the_first() -> None:
    role = worker(workers=2, p=1.0)
    loop = role.run()
    next(loop)
    loop.send(TRAINED)
    assert isinstance(loop.send(None), Train)
    assert isinstance(loop.send(TRAINED), Train), "it goes on without a second offer"
    hear(role, 1, ReadyForShare())
    assert loop.send(TRAINED) == Tell(1, Offer())


def test_with_each_step_that_it_begins_it_is_ready_for_the_oldest_offer() -> None:
    role = worker(workers=4, p=0.0)
    for rank in (2, 1, 3):
        hear(role, rank, Offer())
    list(role.on_worker_left(0.0, 1))
    loop = role.run()
    assert next(loop) == Tell(2, ReadyForShare())
    assert isinstance(loop.send(None), Train)
    assert loop.send(TRAINED) == Tell(3, ReadyForShare())
    assert isinstance(loop.send(None), Train)
    assert isinstance(loop.send(TRAINED), Train)


def test_one_that_has_left_gives_nothing_to_who_is_ready() -> None:
    role = worker()
    list(role.leave(0.0))
    assert hear(role, 1, ReadyForShare()) == []


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


@pytest.mark.parametrize("memory", ["keep", "reset"])
def test_the_optimizer_is_reset_by_a_message_and_by_nothing_else_and_only_if_asked(memory: str) -> None:
    role = worker(workers=2, p=0.0, memory=memory)
    loop = role.run()
    first = next(loop)
    hear(role, 1, share(4.0, 0.25))
    second, third = loop.send(TRAINED), loop.send(TRAINED)
    assert [train.memory for train in (first, second, third)] == ["keep", memory, "keep"]
    with pytest.raises(ConfigError, match="must be one of keep, reset"):
        make("gosgd", {"memory": "average"})


def test_who_cannot_be_told_is_known_to_be_away() -> None:
    role = worker(workers=2, p=1.0)
    loop = role.run()
    next(loop)
    loop.send(TRAINED)
    wanted = loop.throw(PeerLost("worker 1 is lost"))
    assert isinstance(wanted, Train)
    assert role.weight == 0.5
    assert role.anybody() is None, "and nobody is left to tell"
    assert isinstance(loop.send(TRAINED), Train)


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


@pytest.mark.parametrize(("p", "of_them"), [(0.0, 1.0), (0.1, 0.95), (0.2, 0.9), (1.0, 0.7)])
def test_a_step_is_followed_by_a_message_with_probability_p_where_its_receiver_keeps_up(
    p: float, of_them: float
) -> None:
    told: list[int] = []
    sim = Simulation(make("gosgd", {"p": p}), Ghost(8), LocalSteps(lambda rank, rng: 1.0), workers=4, servers=0)

    def see(rank: int, effect: Any) -> None:
        if isinstance(effect, Tell) and isinstance(effect.message, ReadyForShare):
            told.append(effect.to)

    for rank in range(4):
        watch(sim, rank, see)
    sim.run(until=500.5)
    assert sim.steps == [500] * 4
    assert len(told) == pytest.approx(2000 * p * of_them, rel=0.12)
    assert set(told) == (set() if p == 0 else {0, 1, 2, 3})


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
