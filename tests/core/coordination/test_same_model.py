"""A worker that trains another model, or in another way, is told in what it differs."""

from __future__ import annotations

import re

import pytest

from paceline.core.coordination.control_messages import Ready
from paceline.core.coordination.same_model import NAMED_MAX, PACKED_MAX, other_model, other_moment, packed
from paceline.runtime.spec.job_spec import Recipe


def ready(recipe: str, length: int = 10, layout: str = "") -> Ready:
    fingerprint = f"{layout[-8:]}/rest/{recipe[-8:]}"
    return Ready(length=length, fingerprint=fingerprint, seconds_per_step=0.0, optimizer=recipe, layout=layout)


@pytest.mark.parametrize(
    ("recipe", "length", "words"),
    [
        ('{"seed":0,"loaded":false}', 10, "trains in another way than worker 0: its loaded differ;"),
        ('{"seed":1,"loaded":false}', 10, "its loaded, seed differ;"),
        ('{"seed":0,"loaded":false}', 11, r"trains another model than worker 0 \(11 against 10 parameters"),
        ("[" * 5000, 10, "trains another model than worker 0"),
        ("7", 10, "trains another model than worker 0"),
    ],
)
def test_a_worker_that_does_not_fit_is_told_in_what(recipe: str, length: int, words: str) -> None:
    assert re.search(words, other_model(1, ready(recipe, length), ready('{"seed":0,"loaded":true}')))


def test_one_that_fits_is_told_nothing() -> None:
    assert other_model(1, ready("{}"), ready("{}")) == ""


def test_states_of_unlike_rounds_are_refused_but_from_a_worker_that_comes_late() -> None:
    first, mine = ready('{"moment":7}'), ready('{"moment":12}')
    assert "worker 1 goes on after round 12 and worker 0 after round 7" in other_moment(1, mine, first)
    assert other_moment(1, first, first) == other_moment(1, ready("[" * 5000), ready("7")) == ""
    late, early = (Recipe(scheme="esync", moment=moment) for moment in (12, 7))
    assert late.digest() == early.digest()


LAYERS = [f"body.{i}.weight [4096, {i}]" for i in range(5000)]


@pytest.mark.parametrize(
    ("mine", "first", "words"),
    [
        (["a [2]", "b [3]"], ["a [2]", "b [4]"], "it has b [3] where worker 0 has b [4]"),
        (["a [2]"], ["a [2]", "b [4]"], "it has no more where worker 0 has b [4]"),
        (
            LAYERS[:700],
            [*LAYERS[:650], "head.weight [2, 2]"],
            "it has body.650.weight [4096, 650] where",
        ),
        (["a\x1b[2J" + "b" * 999], ["a [2]"], f"it has a?[2J{'b' * (NAMED_MAX - 5)} where"),
    ],
)
def test_the_first_difference_is_named(mine: list[str], first: list[str], words: str) -> None:
    assert words in other_model(1, ready("{}", 10, packed(mine)), ready("{}", 12, packed(first)))


@pytest.mark.parametrize("layout", ["no such text", "\u00e9", "x" * PACKED_MAX, packed(LAYERS)])
def test_whatever_a_worker_sends_for_its_names_is_a_line(layout: str) -> None:
    assert "trains another model" in other_model(1, ready("{}", 10, layout), ready("{}", 12, packed(["a [2]"])))
    assert "trains another model" in other_model(1, ready("{}", 10, packed(["a [2]"])), ready("{}", 12, layout))
