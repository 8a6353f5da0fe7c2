"""A worker that trains another model, or in another way, is told in what it differs."""

from __future__ import annotations

import re

import pytest

from paceline.core.coordination.control_messages import Ready
from paceline.core.coordination.same_model import other_model


def ready(recipe: str, length: int = 10) -> Ready:
    return Ready(length=length, fingerprint=f"names/rest/{recipe[-8:]}", seconds_per_step=0.0, optimizer=recipe)


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
