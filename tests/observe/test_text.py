"""Numbers and nouns as people write them."""

from __future__ import annotations

import pytest

from paceline.observe.text import counted


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [(1, "worker", "1 worker"), (0, "worker", "0 workers"), (7, "process", "7 processes"), (1, "process", "1 process")],
)
def test_nouns_are_in_the_plural_unless_there_is_one(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words
