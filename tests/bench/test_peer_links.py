"""Ways between workers are measured pair by pair, and told in lines of which others pass for nothing."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import combinations, permutations
from typing import Any, cast

import pytest

from paceline.bench import peer_links
from paceline.bench.peer_links import MARK, ROUNDS, PeerLink, Turns, rounds
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.errors import TimedOut
from paceline.live.node.node import Node

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


class FakeNode:
    """Reads what the others publish, without any connection."""

    def __init__(self, rank: int, others: dict[int, FakeNode]) -> None:
        self.me, self.published, self._others = party.worker(rank), dict[str, Any](), others
        others[rank] = self

    def read_state_of(self, who: Party, what: str) -> Any:
        return self._others[who.index].published[what](0)


def test_each_direction_is_measured_in_each_round_and_never_both_of_a_pair_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes: dict[int, FakeNode] = {}
    busy, clashes, said, lock = set[frozenset[int]](), list[Any](), list[PeerLink](), threading.Lock()

    def measured(node: FakeNode, who: Party) -> tuple[float, float]:
        pair = frozenset((node.me.index, who.index))
        with lock:
            clashes.extend([pair] if pair in busy else [])
            busy.add(pair)
        threading.Event().wait(0.002)
        with lock:
            busy.remove(pair)
        return 1e-4, 1e-9 * (1 + node.me.index)

    monkeypatch.setattr(peer_links, "measure_link", measured)
    turns = {rank: Turns(cast(Node, FakeNode(rank, nodes)), 4, 20.0) for rank in range(4)}
    threads = [
        threading.Thread(target=peer_links.measure, args=(nodes[rank], 4, turns[rank], said.append), daemon=True)
        for rank in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert not clashes
    assert Counter((link.source, link.target) for link in said) == dict.fromkeys(permutations(range(4), 2), ROUNDS)
    assert {link.seconds_per_byte for link in said if link.target == 3} == {4e-9}


def test_a_worker_that_never_finishes_is_named() -> None:
    turns = Turns(cast(Node, FakeNode(0, {})), 2, 0.01)
    with pytest.raises(TimedOut, match="worker 1 did not finish measuring"):
        turns.take(1)
