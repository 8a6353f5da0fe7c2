"""Ways between workers are measured pair by pair, and told in lines of which others pass for nothing."""

from __future__ import annotations

from itertools import combinations

import pytest

from paceline.bench.peer_links import MARK, PeerLink, rounds

LINK = PeerLink(source=0, target=2, latency_s=1e-4, seconds_per_byte=1e-9)


@pytest.mark.parametrize("workers", range(1, 10))
def test_each_two_meet_once_and_nobody_twice_in_a_round(workers: int) -> None:
    met = list(rounds(workers))
    assert sorted(pair for pairs in met for pair in pairs) == list(combinations(range(workers), 2))
    for pairs in met:
        there = [rank for pair in pairs for rank in pair]
        assert len(there) == len(set(there))


def test_a_line_is_read_as_it_was_printed() -> None:
    assert PeerLink.of_line(LINK.line()) == LINK


@pytest.mark.parametrize(
    "line",
    ["", "a script's own words", MARK, MARK + "{}", MARK + "[1]", LINK.line().replace("0.0001", "-1"), MARK + "null"],
)
def test_no_other_line_passes_for_one(line: str) -> None:
    assert PeerLink.of_line(line) is None
