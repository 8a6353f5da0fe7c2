"""Single values: read from a command line, converted from TOML, written back."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.config.parsing import convert, described, parse, shown, written

FLOATS = tuple[float, ...]
INTS = tuple[int, ...]


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ("Yes", bool, True),
        ("0", bool, False),
        ("-3", int, -3),
        ("1e3", float, 1000.0),
        ("1,2.5", FLOATS, (1.0, 2.5)),
        ("96,32", INTS, (96, 32)),
    ],
)
def test_text_becomes_a_value_of_its_type_and_the_same_text_value_again(text: str, wanted: Any, value: Any) -> None:
    assert parse(text, wanted) == value
    assert parse(written(value), wanted) == value


def test_an_empty_list_of_numbers_is_none() -> None:
    assert parse(" ", FLOATS) == ()


@pytest.mark.parametrize(
    ("text", "wanted"), [("maybe", bool), ("1.5", int), ("ten", float), ("1,,2", FLOATS), ("1,2.5", INTS)]
)
def test_text_of_another_type_is_refused(text: str, wanted: Any) -> None:
    with pytest.raises(ValueError):
        parse(text, wanted)


def test_whole_numbers_of_toml_become_floats_where_floats_are_wanted() -> None:
    assert isinstance(convert(2, float), float)
    assert convert([1, 2.5], FLOATS) == (1.0, 2.5)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (True, int),
        (True, float),
        (1, bool),
        (1.0, int),
        (math.nan, float),
        (math.inf, float),
        (10**400, float),  # too large for a float
        ("a\0b", str),
        (3.0, FLOATS),
        ([1, math.nan], FLOATS),
        ([1, 2.0], INTS),
    ],
)
def test_values_of_toml_that_do_not_fit_are_refused(value: Any, wanted: Any) -> None:
    with pytest.raises(ValueError):
        convert(value, wanted)


def test_what_is_shown_is_one_line() -> None:
    assert shown("a\nb") == "'a\\nb'"
    assert shown(0.1) == "0.1"
    assert described(FLOATS) == "numbers separated by commas"
