"""How a process ended, in words."""

from __future__ import annotations

import pytest

from paceline.runtime.spec.launcher import how_ended


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-9, "was killed by SIGKILL"),
        (-40, "was killed by signal 40"),  # a real-time signal without a name
    ],
)
def test_a_return_code_is_told_as_an_exit_code_or_a_signal(code: int, words: str) -> None:
    assert how_ended(code) == words
