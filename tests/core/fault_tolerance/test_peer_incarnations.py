"""Which incarnation of a party counts: the latest that was met, unless it is over."""

from __future__ import annotations

import pytest

from paceline.core.fault_tolerance.peer_incarnations import PeerIncarnations


@pytest.fixture
def peers() -> PeerIncarnations[str]:
    return PeerIncarnations()


def over(peers: PeerIncarnations[str], *incarnations: int) -> list[bool]:
    return [peers.is_over("worker 1", incarnation) for incarnation in incarnations]


def test_of_somebody_unknown_nothing_is_over(peers: PeerIncarnations[str]) -> None:
    assert (over(peers, 0, 7), peers.met("worker 1"), len(peers)) == ([False, False], None, 0)


def test_a_later_incarnation_takes_the_place_of_an_earlier_one(peers: PeerIncarnations[str]) -> None:
    assert [peers.meets("worker 1", incarnation) for incarnation in (1, 1, 4, 4)] == [False, False, True, False]
    assert (over(peers, 1, 3, 4, 5), peers.met("worker 1")) == ([True, True, False, False], 4)


def test_an_earlier_one_that_comes_late_changes_nothing(peers: PeerIncarnations[str]) -> None:
    peers.meets("worker 1", 4)
    assert not peers.meets("worker 1", 3)
    assert (over(peers, 3, 4), peers.met("worker 1")) == ([True, False], 4)


def test_the_end_of_an_incarnation_is_that_of_all_before_it(peers: PeerIncarnations[str]) -> None:
    peers.meets("worker 1", 4)
    assert not peers.end("worker 1", 3), "the connection is to a later one"
    assert peers.end("worker 1", 4)
    assert not peers.meets("worker 1", 4), "it may not come back"
    assert over(peers, 4, 5) == [True, False]
    assert peers.meets("worker 1", 5)
    assert peers.met("worker 1") == 5


def test_late_news_of_an_end_opens_nothing_again(peers: PeerIncarnations[str]) -> None:
    assert peers.end("worker 1", 4), "a connection that was never met may be under way"
    peers.end("worker 1", 2)
    assert over(peers, 2, 4, 5) == [True, True, False]


def test_parties_are_known_one_by_one(peers: PeerIncarnations[str]) -> None:
    for incarnation in range(20):
        peers.meets("worker 1", incarnation)
        peers.end("worker 2", incarnation)
    assert (over(peers, 19), peers.met("worker 2"), len(peers)) == ([False], None, 2)
