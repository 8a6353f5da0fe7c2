"""The part of the fuzzer that slows a worker down for a while: what it draws, and bugs that it must see."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.adaptive.step_times import Estimates
from paceline.core.scheme import lookup, make, names
from paceline.schemes.esync import LocalStepsDone, Query
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.fuzzing.fuzz import draw
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.runs import stalls

SEEDS = range(400)
DRAWN = [seed for seed in SEEDS if stalls.draw(seed, 4)]


def check(seed: int, scheme: Any) -> None:
    plan = draw(seed, [scheme])
    stalls.check(seed, plan.scheme, plan.cluster, plan.samples)


def test_some_seeds_slow_a_worker_down_for_one_step_and_some_for_several() -> None:
    drawn = [stalls.draw(seed, 4) for seed in DRAWN]
    assert len(SEEDS) / 8 < len(drawn) < len(SEEDS) / 3
    assert {slow.rank for slow in drawn if slow} == {0, 1, 2, 3}
    assert {slow.steps == 1 for slow in drawn if slow} == {True, False}


@pytest.mark.parametrize("name", names())
def test_throughput_comes_back(name: str) -> None:
    check(DRAWN[0], make(name, {}))
    for seed in DRAWN[1:4]:
        check(seed, schemes_of(seed, [name])[0])


def esync_ignores_times_of_who_made_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator: Any = lookup("esync").Coordinator
    on: Callable[..., Iterator[Any]] = coordinator.on

    def forgetful(self: Any, now: float, src: int, message: Any) -> Iterator[Any]:
        if isinstance(message, Query) and not message.k:
            message = dataclasses.replace(message, c=0.0)
        if not isinstance(message, LocalStepsDone):
            yield from on(self, now, src, message)

    monkeypatch.setattr(coordinator, "on", forgetful)


def lbbsp_remembers_the_slowest_step_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: Any, rank: int, sample: float) -> None:
        self.unknown.discard(rank)
        self._value[rank] = min(sample, self._value.get(rank, sample))

    monkeypatch.setattr(Estimates, "put", put)


@pytest.mark.parametrize(
    ("name", "mutant"),
    [("esync", esync_ignores_times_of_who_made_no_step), ("lbbsp", lbbsp_remembers_the_slowest_step_for_ever)],
)
def test_a_scheme_that_believes_in_a_stall_for_ever_is_caught(
    name: str, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(InvariantBroken, match="times as long"):
        for seed in DRAWN[:12]:
            check(seed, make(name, {}))
