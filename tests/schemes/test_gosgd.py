from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.core.effects import Tell, Train, Trained
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes.gosgd import Offer, ReadyForShare
from paceline.sim import LocalSteps, Simulation
from tests.conformance.test_sim import watch
from tests.core.local.gossip import hear, share, worker

TRAINED = Trained(np.ones(1), 1, 1.0)


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


@pytest.mark.parametrize("memory", ["keep", "reset"])
def test_the_optimizer_is_reset_by_a_message_and_by_nothing_else_and_only_if_asked(memory: str) -> None:
    role = worker(workers=2, p=0.0, memory=memory)
    loop = role.run()
    first = next(loop)
    role.ready = {1}  # type: ignore[attr-defined]
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


def test_nobody_gets_a_share_that_was_not_offered_to_it() -> None:
    """Whoever said again and again that it is ready got half of what was left each time."""
    role = worker(workers=3, p=1.0)
    before = role.weight
    assert hear(role, 1, ReadyForShare()) == []
    assert role.weight == before
