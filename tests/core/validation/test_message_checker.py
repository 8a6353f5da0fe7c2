"""Messages are checked against the bounds of their fields when they arrive."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from paceline.core.adaptive.regrouping import Move
from paceline.core.message import scalar_fields
from paceline.core.paramserver.gated_server import Push
from paceline.core.phases.phase_end import PhaseEntered
from paceline.core.validation import bounds
from paceline.core.validation.bounds import PlanLimits
from paceline.core.validation.message_checker import Checker
from paceline.core.vector import Ghost
from tests.core.validation.messages import all_messages, of_the_coordinator

LIMITS = PlanLimits(workers=4, servers=2, samples=32, length=100, epoch_samples=1000, epochs=3)


def push(clock: int = 1, **claims: Any) -> Push:
    return Push(**{"g": Ghost(100), "clock": clock, "samples": 32, **claims})


def test_what_is_within_its_bounds_passes() -> None:
    checker = Checker(LIMITS)
    message = push(data=((0, 10, 42),), unused=((0, 5), (7, 100)))
    assert checker.check(0, message, length=100) is None


@pytest.mark.parametrize(
    ("claim", "field", "bound"),
    [
        ({"samples": 10**9}, "samples", "32"),
        ({"samples": -32}, "samples", "0"),
        ({"data": ((0, 5, 1),)}, "data", "1000"),
        ({"data": ((-1, 0, 5),)}, "data", "3"),
        ({"data": ((0, 990, 1001),)}, "data", "1000"),
        ({"data": ((0, 0, 900),)}, "data", "32"),
        ({"unused": ((5, 5),)}, "unused", "100"),
        ({"unused": ((0, 101),)}, "unused", "100"),
        ({"unused": ((9, 12), (0, 3))}, "unused", "100"),
        ({"g": Ghost(3)}, "length of g", "100"),
        ({"clock": 2**60}, "clock", "281474976710656"),
        ({"clock": -1}, "clock", "0"),
    ],
)
def test_a_breach_is_one_sentence_with_field_value_and_bound(claim: dict[str, Any], field: str, bound: str) -> None:
    said = Checker(LIMITS).check(0, push(**claim), length=100)
    assert said is not None
    assert "\n" not in said
    assert field in said
    assert bound in said
    assert said.startswith("Push: ")


@pytest.mark.parametrize("claim", [math.nan, math.inf, -math.inf, -1.0])
def test_a_number_that_is_none_is_beyond_every_bound(claim: float) -> None:
    from paceline.core.collective.mean_server import Part

    part = Part(v=Ghost(5), among=(0, 1), tag="t", weight=claim)
    checker = Checker(LIMITS)
    assert checker.check(0, part) is not None
    near = checker.nearest(0, part)
    assert near is not None
    assert 0 <= near.weight <= 32


def test_a_clock_is_one_more_than_the_last() -> None:
    checker = Checker(LIMITS)
    assert [checker.check(0, push(clock)) for clock in (1, 2, 3)] == [None] * 3
    assert checker.check(0, push(5)) == "Push: clock is 5, which has to be at most 4, after 3"
    assert checker.check(0, push(4)) is None
    assert checker.check(1, push(900)) is None  # another worker, of which nothing is known


def test_all_slices_of_a_push_have_the_same_clock() -> None:
    checker = Checker(LIMITS)
    assert [checker.check(0, push(clock), slice) for clock in (1, 2, 3) for slice in range(3)] == [None] * 9


def test_a_push_to_a_new_group_goes_on_with_the_clock_of_the_others() -> None:
    checker = Checker(LIMITS)
    said = [push(1), push(2), Move(g=Ghost(100), clock=3, samples=32, group=(0, 1), number=1), push(4)]
    assert [checker.check(0, message) for message in said] == [None] * 4


def test_a_clock_may_be_repeated_but_not_for_ever() -> None:
    checker = Checker(LIMITS)
    checker.check(0, push(7))
    faults = [checker.check(0, push(7)) for _ in range(2 * bounds.REPEATS_MAX)]
    assert faults[0] is None
    assert faults[-1] == "Push: clock is 7, which has to be 8: it is no new one"


def test_a_later_life_may_begin_with_any_clock() -> None:
    checker = Checker(LIMITS)
    checker.check(0, push(7))
    checker.came(0)
    assert checker.check(0, push(400)) is None


def test_where_a_run_begins_clocks_begin_with_1_at_every_server() -> None:
    """Else a worker that says 3 would be further on one server than on another, and wait there for the others."""
    checker = Checker(LIMITS, from_start=True)
    assert checker.check(0, push(1)) is None
    assert checker.check(1, push(2)) == "Push: clock is 2, which has to be at most 1 to begin with"
    near = checker.nearest(1, push(2))
    assert near is not None
    assert near.clock == 1


def test_the_clocks_of_a_newcomer_begin_about_where_the_others_are() -> None:
    checker = Checker(LIMITS, from_start=True)
    assert [checker.check(0, push(clock)) for clock in (1, 2, 3)] == [None] * 3
    checker.came(1)
    assert checker.check(1, push(400)) == "Push: clock is 400, which has to be at most 5 to begin with"
    assert checker.check(1, push(5)) is None
    checker.forget_all()  # servers went back: nobody knows how far who was
    assert checker.check(0, push(400)) is None


def test_a_newcomer_may_go_on_from_one_that_has_come_back_since() -> None:
    checker = Checker(LIMITS, from_start=True)
    assert [checker.check(0, push(clock)) for clock in (1, 2)] == [None] * 2
    checker.came(1)  # it takes over from worker 0
    checker.came(0)  # which comes back before any of the two has pushed
    assert checker.check(1, push(400)) == "Push: clock is 400, which has to be at most 4 to begin with"
    assert checker.check(1, push(3)) is None
    assert checker.check(0, push(5)) is None


def test_ranks_are_of_the_run_and_each_comes_once() -> None:
    move = Move(g=Ghost(100), clock=1, samples=1, group=(0, 4), number=1)
    assert Checker(LIMITS).check(0, move) == "Move: group is (0, 4), which has to be between 0 and 3"
    twice = dataclasses.replace(move, group=(1, 1))
    assert Checker(LIMITS).check(0, twice) == "Move: group is (1, 1), which has to be each of them once"


def test_the_nearest_message_claims_no_more_than_the_bounds_allow() -> None:
    checker = Checker(LIMITS)
    checker.check(0, push(6))
    near = checker.nearest(0, push(2**60, samples=10**9, data=((9, 9, 1),)), length=100)
    assert near is not None
    assert (near.clock, near.samples, near.data) == (7, 32, ())
    assert checker.check(0, push(8)) is None  # it was taken for that clock


def test_what_says_who_has_no_nearest() -> None:
    checker = Checker(LIMITS)
    assert checker.nearest(0, Move(g=Ghost(100), clock=1, samples=1, group=(0, 9), number=1)) is None
    assert checker.nearest(0, push(g=Ghost(3)), length=100) is None


@pytest.mark.parametrize(
    "cls", [cls for cls in all_messages() if not of_the_coordinator(cls)], ids=lambda cls: cls.__name__
)
def test_whatever_a_field_claims_the_nearest_message_is_within_its_bounds(cls: type) -> None:
    hostile: dict[str, list[Any]] = {
        "int": [-(2**70), -1, 2**60, 2**70],
        "float": [math.nan, math.inf, -math.inf, -1e300, 1e300],
        "str": ["x" * 10**6],
    }
    checker = Checker(LIMITS)
    honest = {field.name: _honest(field.name, cls) for field in dataclasses.fields(cls)}
    for name in scalar_fields(cls):
        for value in hostile.get(type(honest[name]).__name__, []):
            try:
                message = cls(**{**honest, name: value})
            except ValueError:
                continue  # it refuses that when it is made
            if checker.check("s", message) is not None:
                near = checker.nearest("s", message)
                assert near is None or Checker(LIMITS).check("s", near) is None


def _honest(name: str, cls: type) -> Any:
    from typing import get_origin, get_type_hints

    hint = get_type_hints(cls)[name]
    plain = {int: 1, float: 0.5, str: "a", bytes: b"a", bool: True}
    if hint in plain:
        return plain[hint]
    return {} if get_origin(hint) is dict else () if get_origin(hint) is tuple else Ghost(100)


def test_a_clock_that_is_no_new_one_becomes_one_so_that_all_servers_have_the_same_round() -> None:
    checker = Checker(dataclasses.replace(LIMITS, repeats=0))
    checker.check(0, push(6))
    for lie in (6, -(10**9), 2**60, 9, 1):
        assert checker.check(0, push(lie)) is not None
        near = checker.nearest(0, push(lie))
        assert near is not None
    assert near.clock == 11
    assert checker.check(0, push(12)) is None


def test_a_worker_that_enters_another_phase_counts_from_the_beginning() -> None:
    checker = Checker(dataclasses.replace(LIMITS, repeats=0))
    said = [push(1), push(2), PhaseEntered(phase=1), push(1), push(2)]
    assert [checker.check(0, message) for message in said] == [None] * 5
