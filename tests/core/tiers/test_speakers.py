from paceline.core.scheme import make
from paceline.core.tiers.messages import Speaker, WhoSpeaks
from paceline.core.tiers.speakers import SpeakersCoordinator
from tests.role_driver import ByHand


def coordinator(groups: str = "0,1,2;3,4") -> ByHand:
    return ByHand(SpeakersCoordinator, make("tiers", {"groups": groups}), 5, w=None)


def asks(by_hand: ByHand, rank: int, after: int = 0) -> dict[int, Speaker]:
    return by_hand.on(rank, WhoSpeaks(after=after))


def test_the_first_member_of_each_group_speaks_for_it() -> None:
    c = coordinator()
    assert asks(c, 1) == {1: Speaker(rank=0, term=1)}
    assert asks(c, 4) == {4: Speaker(rank=3, term=1)}
    why = "the first of its group"
    assert c.decisions() == [(0, "speaks for group 0", why), (3, "speaks for group 1", why)]


def test_who_asks_for_the_next_term_is_answered_when_the_speaker_is_gone() -> None:
    c = coordinator()
    assert asks(c, 2, after=1) == {}
    assert asks(c, 1, after=1) == {}
    assert c.gone(0) == {2: Speaker(rank=1, term=2), 1: Speaker(rank=1, term=2)}
    assert c.decisions()[2:] == [(1, "speaks for group 0", "worker 0, who spoke for it, is gone")]


def test_one_that_comes_back_speaks_last() -> None:
    c = coordinator()
    c.gone(0)
    c.came(0)
    assert asks(c, 0) == {0: Speaker(rank=1, term=2)}
    asks(c, 2, after=2)
    assert c.gone(1) == {2: Speaker(rank=2, term=3)}


def test_a_group_without_members_has_a_speaker_again_when_one_that_came_asks() -> None:
    c = coordinator()
    c.gone(3)
    c.gone(4)
    assert c.came(4) == {}  # it is announced, and cannot be called before it runs
    assert asks(c, 4) == {4: Speaker(rank=4, term=3)}


def test_a_newcomer_that_asks_before_it_is_heard_of_is_answered_then() -> None:
    c = coordinator()
    c.gone(4)
    assert asks(c, 4) == {}
    assert c.came(4) == {4: Speaker(rank=3, term=1)}
