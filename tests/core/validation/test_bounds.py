"""What a party may claim in a message: declared beside every field, checked where messages arrive."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import numpy as np
import pytest

from paceline.core.message import hints_of, scalar_fields, vector_fields
from paceline.core.validation.bounds import (
    NOTHING,
    Asked,
    Length,
    Loss,
    Numbers,
    OfKey,
    OfOneLength,
    Parcel,
    PlanLimits,
    Range,
    Several,
    Strip,
    bounds_of,
)
from paceline.core.validation.message_checker import Checker
from tests.core.validation.messages import all_messages, of_the_coordinator

LIMITS = PlanLimits(workers=4, servers=2, length=100, samples=32, epochs=2, epoch_samples=1000, slices=3)
SENT_BY_OTHERS = [cls for cls in all_messages() if not of_the_coordinator(cls)]


def test_every_field_that_anybody_but_the_coordinator_can_send_has_a_declared_bound() -> None:
    without = [
        f"{cls.__module__}.{cls.__qualname__}.{field}"
        for cls in SENT_BY_OTHERS
        for field, bound in bounds_of(cls).items()
        if bound is None
    ]
    assert not without
    assert len([cls for cls in all_messages() if scalar_fields(cls)]) > 50  # they were found


def test_every_vector_has_a_declared_length() -> None:
    """Those that only their receiver can compare have one of five types; it names who does that."""
    of_receivers = [get_args(kind)[1] for kind in (OfOneLength, Strip, Asked, OfKey, Parcel)]
    vectors = [(cls, name) for cls in SENT_BY_OTHERS for name in vector_fields(cls)]
    assert len(vectors) > 25
    for cls, name in vectors:
        bound = bounds_of(cls)[name]
        assert isinstance(bound, Length) or bound in of_receivers, f"{cls.__qualname__}.{name}"


def test_every_number_has_two_ends() -> None:
    """Loss alone has none: it is shown, and nothing more."""
    for cls in SENT_BY_OTHERS:
        for name, bound in bounds_of(cls).items():
            if hints_of(cls)[name] in (int, float) and bound != get_args(Loss)[1]:
                assert isinstance(bound, Range), f"{cls.__qualname__}.{name}"
                assert abs(bound.low) < float("inf"), f"{cls.__qualname__}.{name}"
                assert bound.top(LIMITS) < float("inf"), f"{cls.__qualname__}.{name}"


def test_every_list_and_every_text_has_a_maximum() -> None:
    lists = 0
    for cls in SENT_BY_OTHERS:
        for name, bound in bounds_of(cls).items():
            kind = get_origin(hints_of(cls)[name]) or hints_of(cls)[name]
            if kind in (tuple, dict, str, bytes):
                lists += 1
                most = getattr(bound, "most", 0)
                assert 0 < most <= 1 << 16, f"{cls.__qualname__}.{name}"
                too_many: Any = {tuple: ((),), str: "x", bytes: b"x", dict: ()}[kind] * (most + 1)
                if kind is not dict:
                    assert bound is not None
                    assert bound.fault(too_many, LIMITS) is not None, f"{cls.__qualname__}.{name}"
    assert lists > 40


def test_a_dict_has_a_maximum() -> None:
    bound = Numbers(most=2)
    assert bound.fault({"a": 1.0, "b": 2.0}, LIMITS) is None
    assert (bound.fault({"a": 1.0, "b": 2.0, "c": 3.0}, LIMITS) or "").startswith("2 of them at most")
    assert bound.nearest({}, LIMITS) is NOTHING


def test_a_list_is_cut_to_its_maximum_where_its_items_are_numbers() -> None:
    assert Several(Range(0, 9), most=2).nearest((1, 2, 3), LIMITS) == (1, 2)


def filled(cls: type, length: int) -> Any:
    """Returns a message with vectors of that length, and scalars as plain as they can be."""
    plain: dict[Any, Any] = {int: 1, float: 1.0, str: "a", bytes: b"", bool: False, tuple: (), dict: {}}
    hints = hints_of(cls)
    values = {name: plain.get(get_origin(hints[name]) or hints[name], ()) for name in scalar_fields(cls)}
    return cls(**values, **{name: np.zeros(length, np.float32) for name in vector_fields(cls)})


CHECKED_HERE = [cls for cls in SENT_BY_OTHERS if any(isinstance(bound, Length) for bound in bounds_of(cls).values())]


@pytest.mark.parametrize("cls", CHECKED_HERE)
def test_a_vector_of_a_wrong_length_is_refused_in_every_message(cls: type) -> None:
    exact = all(bound.exact for bound in bounds_of(cls).values() if isinstance(bound, Length))
    for length in (0, 99, 101, 200):
        checker = Checker(LIMITS)
        message = filled(cls, length)
        if length > 100 or exact:
            assert "the length of" in (checker.check(1, message, length=100) or "")
            assert checker.nearest(1, message, length=100) is None
        else:
            assert checker.check(1, message, length=100) is None
    assert Checker(LIMITS).check(1, filled(cls, 100), length=100) is None
