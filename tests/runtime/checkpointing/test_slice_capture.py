"""What is kept of a slice is all that it is made of: one made from it goes on as the other does."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from paceline.core.fault_tolerance.replication import SliceState, mark_of
from paceline.core.paramserver.gated_server import Pull, Push, Weights
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import make
from paceline.engine.optim.optimizers import ServerOptimizer, make_rule
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.engine.vectors.flat import Flat
from paceline.runtime.checkpointing.slice_capture import revive, state_of, together

LENGTH, WORKERS = 5, 3


SCHEDULE = ScheduleRecipe(name="step", every=40, factor=0.5)


RULES = {
    "sgd": OptimizerRecipe(name="sgd", lr=0.1),
    "momentum": OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": OptimizerRecipe(name="adam", lr=0.01),
    "lamb": OptimizerRecipe(name="lamb", lr=0.01),
}


def rule_of(name: str) -> ServerOptimizer:
    return make_rule(RULES[name], SCHEDULE, (LENGTH,))


def server(scheme: str, rule: ServerOptimizer, w: Any) -> Role:
    made = make(scheme, {})
    assert made.Server is not None
    return made.Server(made, RoleContext(me=0, workers=tuple(range(WORKERS)), w=w, update=rule))


def push(role: Role, rank: int, clock: int) -> list[tuple[int, list[float]]]:
    """Who is answered, with which weights."""
    g = Flat.wrap(torch.arange(LENGTH) * 0.1 + rank - 0.5 * clock)
    replies = list(role.on(0.0, rank, Push(g=g, clock=clock, samples=8)))
    return [(reply.to, reply.message.w.value().tolist()) for reply in replies if isinstance(reply.message, Weights)]


def through_json(state: SliceState) -> SliceState:
    return SliceState(state.vectors, json.loads(json.dumps(state.facts)))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_a_revived_slice_answers_as_the_other_does(scheme: str, rule: str) -> None:
    first_rule = rule_of(rule)
    first = server(scheme, first_rule, Flat.wrap(torch.ones(LENGTH)))
    for clock in (1, 2):
        for rank in range(WORKERS):
            push(first, rank, clock)
    first_rule.set_lr(first_rule.lr / 2)  # as a scheduler of the user's may
    state = through_json(state_of(first, first_rule))
    second_rule = rule_of(rule)
    second = revive(state, second_rule, lambda w: server(scheme, second_rule, w))
    for clock in (3, 4):
        for rank in range(WORKERS):
            assert push(first, rank, clock) == push(second, rank, clock)
    assert second.version == first.version  # type: ignore[attr-defined]
    assert push(second, 0, 4) == [(0, second.model()[0].value().tolist())], "a repeat is answered and changes nothing"


def test_who_waits_for_a_round_makes_its_push_again() -> None:
    rule = rule_of("momentum")
    first = server("bsp", rule, Flat.wrap(torch.ones(LENGTH)))
    assert push(first, 0, 1) == []
    again = rule_of("momentum")
    second = revive(through_json(state_of(first, rule)), again, lambda w: server("bsp", again, w))
    for rank in range(WORKERS):
        expected = push(second, rank, 1)
    assert [to for to, _ in expected] == [0, 1, 2]
    for rank in (1, 2):
        answered = push(first, rank, 1)
    assert answered == expected


def test_a_copy_knows_what_a_newcomer_calls_its_clock() -> None:
    """Worker 2 counts from elsewhere: what it asks again is a repeat, and what it has not asked yet is none."""
    for scheme, counted_from in (("asp", 8), ("bsp", 1)):
        rule, again = rule_of("sgd"), rule_of("sgd")
        first = server(scheme, rule, Flat.wrap(torch.ones(LENGTH)))
        for rank in range(WORKERS):
            push(first, rank, 1)
        mark = mark_of(first)
        list(first.on_worker_left(0.0, 2))
        for rank in (0, 1):
            push(first, rank, 2)
        list(first.on_worker_joined(0.0, 2))
        assert mark_of(first) != mark, "it is copied at once"
        for clock in (0, 1):
            for rank in (0, 1):
                push(first, rank, clock + 3)
            push(first, 2, clock + counted_from)
        made = through_json(state_of(first, rule))
        second = revive(made, again, lambda w, scheme=scheme, rule=again: server(scheme, rule, w))  # type: ignore[misc]
        push(second, 2, counted_from + 1)
        assert second.version == first.version, f"{scheme} applies it twice"  # type: ignore[attr-defined]
        for rank, clock in ((0, 5), (1, 5), (2, counted_from + 2)):
            assert push(first, rank, clock) == push(second, rank, clock)
        assert second.version == first.version  # type: ignore[attr-defined]


def test_a_newcomer_that_goes_before_its_first_push_is_copied_again_when_it_comes_again() -> None:
    """The copies made in between do not know it, and it may enter once the newest does."""
    first = server("bsp", rule_of("sgd"), Flat.wrap(torch.ones(LENGTH)))
    for incarnation in (1, 2):
        list(first.on_worker_left(0.0, 2))
        mark = mark_of(first)
        list(first.on_worker_joined(0.0, 2))
        assert mark_of(first) != mark, f"incarnation {incarnation} is in no copy"


def test_a_clock_that_a_worker_tells_after_all_slices_went_back_is_copied_before_it_is_answered() -> None:
    """It tells it once. A server made of a copy without it would hold back whoever waits for that worker."""
    rule = rule_of("sgd")
    state = through_json(state_of(server("ssp", rule, Flat.wrap(torch.ones(LENGTH))), rule))
    back = revive(together(state), rule, lambda w: server("ssp", rule, w))
    for rank in range(WORKERS):
        before = mark_of(back)
        list(back.on(0.0, rank, Pull(last=2)))
        told = mark_of(back)
        assert told != before, f"no copy knows what worker {rank} told"
        list(back.on(0.0, rank, Pull(last=2)))
        assert mark_of(back) == told, "a repeat tells nothing new"


def test_a_contribution_that_is_dropped_is_copied_before_it_is_answered() -> None:
    """Its samples go to others. A server made of a copy without it would judge it once more, and might apply it."""
    rule = rule_of("sgd")
    weedout = make("weedout", {"window": 1})
    assert weedout.Server is not None
    role = weedout.Server(
        weedout, RoleContext(me=0, workers=tuple(range(WORKERS)), w=Flat.wrap(torch.ones(LENGTH)), update=rule)
    )
    for clock in (1, 2):
        for rank in (1, 2):
            push(role, rank, clock)
    before, mark = role.version, mark_of(role)  # type: ignore[attr-defined]
    push(role, 0, 1)
    assert role.version == before, "it is too late to be applied"  # type: ignore[attr-defined]
    assert mark_of(role) != mark
    again = revive(
        through_json(state_of(role, rule)),
        rule,
        lambda w: weedout.Server(weedout, RoleContext(me=0, workers=tuple(range(WORKERS)), w=w, update=rule)),
    )
    push(again, 0, 1)
    assert again.version == before, "what comes again is answered and changes nothing"  # type: ignore[attr-defined]
