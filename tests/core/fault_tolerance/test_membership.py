"""The state machine of who takes part, told what happens by a script."""

from __future__ import annotations

import math
from random import Random

import pytest

from paceline.core.fault_tolerance.membership import (
    Announce,
    Enter,
    Evict,
    LetExit,
    Membership,
    MembershipDecision,
    MembershipState,
    Patience,
    Refuse,
)


def training(*names: str, patience: Patience | None = None) -> Membership[str]:
    """A run that began at 0 with these, each in its incarnation 0."""
    members: Membership[str] = Membership(patience)
    for name in names:
        assert members.hello(0.0, name, 0) == []
    members.begin(0.0)
    return members


def test_a_run_begins_with_all_that_said_hello() -> None:
    members = training("a", "b")
    assert members.here() == ["a", "b"]
    assert members.view == 1


def test_a_reset_evicts_at_once_and_only_once() -> None:
    members = training("a", "b")
    assert members.lost(1.0, "b", 0, "reset") == [Evict("b", 0, 2, "reset", known=True)]
    assert members.lost(1.1, "b", 0, "told by a") == []
    assert members.here() == ["a"]


def test_a_burnt_life_is_refused_and_a_later_one_let_in() -> None:
    members = training("a", "b")
    members.lost(1.0, "b", 0, "silent")
    assert isinstance(members.hello(2.0, "b", 0)[0], Refuse)
    assert members.state("b") is MembershipState.LOST
    assert members.hello(2.0, "b", 1) == []
    assert members.state("b") is MembershipState.JOINING
    assert members.lost(2.1, "b", 0, "an echo of the incarnation before") == []


def test_a_newcomer_enters_when_all_others_know() -> None:
    members = training("a", "b", "c")
    members.lost(1.0, "c", 0, "reset")
    members.hello(2.0, "c", 1)
    assert members.ready(3.0, "c") == [Announce("c", 1, 3)]
    assert members.acknowledged(3.1, "a", 2) == [], "that was an earlier view"
    assert members.acknowledged(3.2, "a", 3) == []
    assert members.acknowledged(3.3, "b", 3) == [Enter("c", 1, 3)]
    assert members.here() == ["a", "b", "c"]


def test_nobody_waits_for_one_that_dies_before_it_has_heard() -> None:
    members = training("a", "b", "c")
    members.lost(1.0, "c", 0, "reset")
    members.hello(2.0, "c", 1)
    members.ready(3.0, "c")
    members.acknowledged(3.1, "a", 3)
    assert members.lost(3.2, "b", 0, "reset") == [Evict("b", 0, 4, "reset", known=True), Enter("c", 1, 3)]


def test_one_that_dies_while_it_joins_is_nobodys_affair() -> None:
    members = training("a", "b")
    members.lost(1.0, "b", 0, "reset")
    members.hello(2.0, "b", 1)
    assert members.lost(2.5, "b", 1, "reset") == [Evict("b", 1, 2, "reset", known=False)]
    assert members.view == 2


def test_a_later_life_evicts_the_one_before() -> None:
    members = training("a", "b")
    assert members.hello(1.0, "b", 1) == [Evict("b", 0, 2, "came back", known=True)]
    assert members.state("b") is MembershipState.JOINING


def test_silence_is_death_after_its_time_and_not_before() -> None:
    members = training("a", "b", patience=Patience(dead_s=1.0))
    for k in range(1, 11):
        members.heard(k / 10, "a")
        assert members.tick(k / 10) == []
    members.heard(1.1, "a")
    (evicted,) = members.tick(1.1)
    assert evicted == Evict("b", 0, 2, "silent for 1.1 s", known=True)


def test_what_the_coordinator_slept_through_is_held_against_nobody() -> None:
    members = training("a", "b", patience=Patience(dead_s=1.0))
    assert members.tick(0.1) == []
    assert members.tick(60.0) == []
    assert members.here() == ["a", "b"]


def test_a_coordinator_that_is_suspended_again_and_again_counts_an_eighth_of_the_silence_each_time() -> None:
    """Three pauses that are short each would otherwise add up to a silence, though hardly anybody was listening."""
    members = training("a", "b", patience=Patience(dead_s=1.0))
    members.tick(0.0)
    for pause in (0.45, 0.9, 1.35):
        assert members.tick(pause) == []
    for now in (1.475, 1.6, 1.725, 1.85, 1.975):
        members.heard(now, "a")
        assert members.tick(now) == []
    members.heard(2.1, "a")
    (evicted,) = members.tick(2.1)
    assert evicted == Evict("b", 0, 2, "silent for 1.1 s", known=True)


def run_for(
    members: Membership[str], until: float, *, waits: bool, steps: int, step_s: float
) -> list[MembershipDecision[str]]:
    """`a` says all the time where it stands."""
    now = 0.0
    while now < until:
        now += 0.25
        members.progressed(now, "a", steps, waits=waits, step_s=step_s)
        if found := members.tick(now):
            return found
    return []


@pytest.mark.parametrize(
    ("waits", "steps", "step_s", "evicted"),
    [(False, 5, 0.1, True), (True, 5, 0.1, False), (False, 5, 3.0, False), (False, 0, 0.0, False)],
    ids=["stuck", "waits for others", "steps take long", "first step"],
)
def test_alive_without_progress_is_stuck(waits: bool, steps: int, step_s: float, evicted: bool) -> None:
    members = training("a", patience=Patience(stuck_s=2.0))
    found = run_for(members, 10.0, waits=waits, steps=steps, step_s=step_s)
    assert bool(found) == evicted
    if evicted:
        assert isinstance(found[0], Evict)
        assert "no step for" in found[0].reason


def test_one_that_makes_no_step_is_known_of_at_half_time() -> None:
    members = training("a", "b", patience=Patience(dead_s=100.0, stuck_s=10.0))
    members.progressed(1.0, "a", 5, waits=False)
    members.progressed(1.0, "b", 5, waits=False)
    members.progressed(6.0, "b", 5, waits=True)
    assert members.half_stuck(6.0) == []
    assert members.half_stuck(6.1) == ["a"]
    assert members.state("a") is MembershipState.TRAINING


def test_patience_without_end_calls_nobody_stuck() -> None:
    members = training("a", patience=Patience(stuck_s=math.inf))
    assert run_for(members, 1000.0, waits=False, steps=1, step_s=0.1) == []


def test_one_that_has_left_is_neither_silent_nor_stuck() -> None:
    members = training("a", "b", patience=Patience(dead_s=1.0))
    assert members.left(0.5, "b") == []
    assert members.view == 2
    for k in range(1, 40):
        members.heard(k / 10, "a")
        members.progressed(k / 10, "a", k, waits=False)
        assert members.tick(k / 10) == []
    assert members.state("b") is MembershipState.LEFT


def test_nobody_waits_for_what_one_that_has_left_would_acknowledge() -> None:
    members = training("a", "b")
    members.hello(1.0, "new", 0)
    members.ready(1.0, "new")
    assert members.acknowledged(1.1, "a", members.view) == []
    assert members.left(1.2, "b") == [Enter("new", 0, 2)]


def test_a_drained_one_may_exit_when_all_that_are_here_have_acknowledged_that_it_has_left() -> None:
    members = training("a", "b", "c")
    assert members.left(1.0, "c", drained=True) == []
    assert members.acknowledged(1.1, "a", members.view - 1) == [], "that it left is a later change"
    assert members.acknowledged(1.2, "a", members.view) == []
    assert members.acknowledged(1.3, "b", members.view) == [LetExit("c")]
    assert members.acknowledged(1.4, "b", members.view) == [], "it is let go once"
    assert members.state("c") is MembershipState.LEFT


def test_one_that_leaves_otherwise_is_not_let_go() -> None:
    members = training("a", "b")
    assert members.left(1.0, "b") == []
    assert members.acknowledged(1.1, "a", members.view) == []


def test_who_is_lost_or_leaves_does_not_keep_a_drained_one() -> None:
    members = training("a", "b", "c", "d")
    members.left(1.0, "d", drained=True)
    assert members.lost(1.1, "a", 0, "reset") == [Evict("a", 0, 3, "reset", known=True)]
    members.acknowledged(1.2, "b", members.view)
    assert members.left(1.3, "c") == [LetExit("d")]
    alone = training("a")
    assert alone.left(1.0, "a", drained=True) == [LetExit("a")], "nobody is there who has to hear"


def test_two_that_are_drained_at_once_wait_for_the_others_and_not_for_one_another() -> None:
    members = training("a", "b", "c")
    members.left(1.0, "b", drained=True)
    first = members.view
    assert members.left(1.1, "c", drained=True) == []
    assert members.acknowledged(1.2, "a", first) == [LetExit("b")]
    assert members.acknowledged(1.3, "a", members.view) == [LetExit("c")]


def test_a_newcomer_that_was_announced_has_to_hear_that_a_drained_one_has_left() -> None:
    members = training("a", "b")
    members.hello(0.5, "new", 0)
    members.ready(0.6, "new")
    joined = members.view
    assert members.left(1.0, "b", drained=True) == []
    assert members.acknowledged(1.1, "a", joined) == [Enter("new", 0, joined)]
    assert members.acknowledged(1.2, "a", members.view) == []
    assert members.acknowledged(1.3, "new", members.view) == [LetExit("b")]


def test_a_later_incarnation_of_one_that_has_left_is_let_in_and_nobody_hears_of_a_loss() -> None:
    members = training("a", "b")
    members.left(0.5, "b")
    assert members.hello(1.0, "b", 1) == []
    assert members.state("b") is MembershipState.JOINING
    assert isinstance(members.hello(1.1, "b", 0)[0], Refuse)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_views_and_lives_only_grow_and_nobody_waits_for_the_dead(seed: int) -> None:
    draw, names = Random(seed), ("a", "b", "c", "d")
    members = training(*names, patience=Patience(dead_s=1.0))
    incarnations, now, view = dict.fromkeys(names, 0), 0.0, members.view
    told: dict[str, int] = {}
    for _ in range(400):
        now += draw.random() * 0.3
        who = draw.choice(names)
        match draw.randrange(6):
            case 0:
                made = members.lost(now, who, draw.choice((incarnations[who], incarnations[who] - 1)), "reset")
            case 1 if members.state(who) is MembershipState.LOST:
                incarnations[who] += 1
                made = members.hello(now, who, incarnations[who])
            case 2:
                made = members.ready(now, who)
            case 3:
                made = members.acknowledged(now, who, view)
            case 4:
                made = members.tick(now)
            case _:
                made = []
                for name in members.here():
                    members.heard(now, name)
        for decision in made:
            match decision:
                case Evict(name, incarnation):
                    assert isinstance(members.hello(now, name, incarnation)[0], Refuse)
                case Announce(name, _, at):
                    told[name] = at
                case Enter(name, incarnation, at):
                    assert told.pop(name) == at
                    assert incarnation == incarnations[name] == members.incarnation(name)
        assert members.view >= view
        view = members.view
    for name in members.here():
        members.acknowledged(now, name, view)
    assert all(members.state(name) is MembershipState.TRAINING for name in members.here())


def test_what_counts_is_what_the_present_incarnation_says_until_it_is_lost() -> None:
    members = training("a", "b")
    assert members.hears("a", 0)
    assert not members.hears("a", 1)
    assert not members.hears("c", 0)
    members.left(1.0, "a")
    assert members.hears("a", 0), "it still answers"
    members.lost(1.0, "b", 0, "reset")
    assert (members.hears("b", 0), members.burnt("b", 0), members.burnt("b", 1)) == (False, True, False)
    members.hello(2.0, "b", 3)
    assert (members.hears("b", 3), members.burnt("b", 2), members.burnt("b", 3)) == (True, True, False)
    assert not members.burnt("c", 0)


def test_a_newcomer_that_never_begins_is_lost_and_one_that_reports_is_not() -> None:
    """Its process is heard all the time, and all others wait for it."""
    members = training("a", "b", "c", patience=Patience(stuck_s=300.0))
    for name in ("b", "c"):
        members.lost(1.0, name, 0, "reset")
        members.hello(2.0, name, 1)
        members.ready(3.0, name)
    for name in ("a", "b", "c"):
        members.acknowledged(4.0, name, members.view)
    assert members.state("b") is members.state("c") is MembershipState.TRAINING
    decisions: list[MembershipDecision[str]] = []
    for second in (half / 2 for half in range(10, 260)):
        members.heard(second, "b")
        members.progressed(second, "a", int(second), waits=False, step_s=1.0)
        members.progressed(second, "c", 0, waits=True)  # it waits for b
        assert members.half_stuck(second) == (["b"] if 64 < second <= 124.5 else []), second
        decisions += members.tick(second)
    assert decisions == [Evict("b", 1, 6, "joined, and did not begin to train within 120 s", known=True)]
