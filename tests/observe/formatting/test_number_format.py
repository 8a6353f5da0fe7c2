"""Numbers and nouns as people write them."""

from __future__ import annotations

import pytest

from paceline.core.trace import Leased
from paceline.observe.formatting.number_format import counted, leased_text


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [(1, "worker", "1 worker"), (0, "worker", "0 workers"), (7, "process", "7 processes"), (1, "process", "1 process")],
)
def test_nouns_are_in_the_plural_unless_there_is_one(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words


def leased(**changed: int) -> Leased:
    none = dict.fromkeys(("epochs", "done", "twice", "returned", "dropped", "undone", "left_out"), 0)
    return Leased(at=9.0, **none | changed)


def test_of_leased_data_it_is_told_what_is_done_and_what_was_given_out_again() -> None:
    assert leased_text(leased(epochs=1, done=25_600)).splitlines() == [
        "leased samples: 25,600 are in an update, each in one; 1 whole epoch",
        "given to others: none",
    ]
    assert leased_text(leased(epochs=2, done=500, twice=7, returned=1_200, undone=30, left_out=4)).splitlines() == [
        "leased samples: 500 are in an update, 7 of them in a second one, too; 2 whole epochs",
        "given to others: 1,200 of workers that left or were lost, 30 of updates that were lost with a server; "
        "left out, since refused twice: 4",
    ]
