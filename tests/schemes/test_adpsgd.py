from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.core.effects import Compute, Computed, Effect, Tell
from paceline.core.local.push_sum import Share
from paceline.core.local.topology import is_active
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes.adpsgd import Average, ExchangeDeclined, Moved
from paceline.sim import LocalSteps, Simulation
from tests.conformance.test_sim import watch


def worker(me: int, workers: int = 4, w: float = 0.0, **parameters: Any) -> Any:
    scheme = make("adpsgd", parameters)
    place = RoleContext(me=me, workers=tuple(range(workers)), w=np.array([w]), update=lambda w, g, n: w - g)
    return scheme.worker(0)(scheme, place)


def hear(role: Any, src: int, message: Any) -> list[Any]:
    return list(role.on(0.0, src, message))


def test_averaging_meets_in_the_middle_though_the_one_who_asked_has_gone_on() -> None:
    active, passive = worker(0, w=4.0), worker(1, w=0.0)
    loop = active.run()
    asked = next(loop)
    assert isinstance(asked.message, Average)
    assert isinstance(loop.send(None), Compute)
    (answer,) = hear(passive, 0, asked.message)
    assert passive.w == [2.0]
    loop.send(Computed(np.array([0.5]), 1, 1.0))  # a step meanwhile
    assert active.w == [3.5]
    assert hear(active, 1, answer.message) == []
    assert active.w == [1.5]
    assert active.w + passive.w == 4.0 - 0.5


def test_one_averaging_is_under_way_at_a_time() -> None:
    active = worker(0)
    loop = active.run()
    assert isinstance(next(loop), Tell)
    effects: list[Effect] = [loop.send(None)]
    effects += [loop.send(Computed(np.zeros(1), 1, 1.0)) for _ in range(3)]
    assert {type(effect) for effect in effects} == {Compute}
    hear(active, active.asked, Moved(d=np.zeros(1)))
    assert isinstance(loop.send(Computed(np.zeros(1), 1, 1.0)), Tell)


def test_a_gradient_is_applied_to_what_averaging_has_made_of_the_model() -> None:
    passive = worker(1, w=0.0)
    loop = passive.run()
    wanted = next(loop)
    assert wanted.w == [0.0]
    hear(passive, 0, Average(x=np.array([8.0]), weight=1.0))
    loop.send(Computed(np.array([1.0]), 1, 1.0))
    assert passive.w == [3.0]


def test_one_that_has_left_declines_and_is_asked_no_more() -> None:
    gone = worker(1, workers=2)
    list(gone.leave(0.0))
    (no,) = hear(gone, 0, Average(x=np.array([8.0]), weight=1.0))
    assert no.message == ExchangeDeclined()
    active = worker(0, workers=2)
    loop = active.run()
    next(loop)
    hear(active, 1, ExchangeDeclined())
    assert isinstance(loop.send(None), Compute)
    assert isinstance(loop.send(Computed(np.zeros(1), 1, 1.0)), Compute), "there is nobody to average with"


@pytest.mark.parametrize("topology", ["ring", "complete"])
@pytest.mark.parametrize("workers", [1, 2, 3, 6, 7])
def test_only_active_workers_ask_and_only_passive_ones_are_asked(topology: str, workers: int) -> None:
    asked: set[tuple[int, int]] = set()

    def see(rank: int, effect: Effect) -> None:
        if isinstance(effect, Tell) and isinstance(effect.message, Average):
            assert isinstance(effect.to, int)
            asked.add((rank, effect.to))

    scheme = make("adpsgd", {"topology": topology})
    sim = Simulation(scheme, Ghost(4), LocalSteps(lambda rank, rng: 1.0 + rank), workers=workers, servers=0)
    for rank in range(workers):
        watch(sim, rank, see)
    sim.run(until=100.5)
    assert sim.steps == [int(100.5 / (1 + rank)) for rank in range(workers)], "nobody waits"
    assert all(is_active(i, ()) and not is_active(j, ()) for i, j in asked)
    passive = workers // 2
    edges = (workers - passive) * passive if topology == "complete" or workers < 3 else workers - workers % 2
    assert len(asked) == edges


def test_a_newcomer_without_mass_moves_nobody() -> None:
    newcomer = worker(1, w=3.0)
    newcomer.weight = 0.0
    (answer,) = hear(newcomer, 0, Average(x=np.array([5.0]), weight=1.0))
    assert newcomer.w == [3.0]
    assert answer.message.d == [0.0]


def test_what_an_earlier_life_was_moved_by_is_taken_off_the_first_mass() -> None:
    newcomer = worker(0, workers=2, w=5.0)
    newcomer.load_join_state({"away": []})
    assert hear(newcomer, 1, Moved(d=np.array([2.0]))) == []
    assert newcomer.w == [5.0]
    hear(newcomer, 1, Share(w=np.array([6.0]), weight=0.5))
    newcomer.absorb()
    assert newcomer.w * newcomer.weight == [6.0 * 0.5 - 2.0]


def test_one_that_leaves_before_it_has_a_mass_hands_that_debt_over() -> None:
    newcomer = worker(0, workers=2, w=5.0)
    newcomer.load_join_state({"away": []})
    hear(newcomer, 1, Moved(d=np.array([2.0])))
    (share, moved) = list(newcomer.leave(0.0))
    assert (share.to, share.message.weight) == (1, 0.0)
    assert (moved.to, moved.message.d) == (1, [2.0])


def test_a_model_that_is_not_finite_moves_neither_side() -> None:
    active, passive = worker(0, w=4.0), worker(1, w=2.0)
    next(active.run())
    (answer,) = hear(passive, 0, Average(x=np.array([np.nan]), weight=1.0))
    assert hear(active, active.asked, answer.message) == []
    assert (active.w, passive.w, active.asked) == ([4.0], [2.0], None)
    next(active.run())
    assert hear(active, active.asked, Moved(d=np.array([np.inf]))) == []
    assert (active.w, active.asked) == ([4.0], None)
