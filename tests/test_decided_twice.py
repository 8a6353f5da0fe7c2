"""What the simulator still decides for itself is listed, and little."""

from __future__ import annotations

from scripts.decided_twice import RULES, lines_of


def test_what_is_decided_twice_is_there_and_does_not_grow() -> None:
    found = [lines_of(place) for places in RULES.values() for place in places]
    assert all(lines > 1 for lines in found)
    assert sum(found) <= 10
