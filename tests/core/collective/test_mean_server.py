from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from paceline.core.collective.mean_server import MeanServer, Part, mean_model
from paceline.core.scheme import Scheme
from tests.role_driver import ByHand


def part(
    v: float, weight: float = 1.0, among: tuple[int, ...] = (0, 1, 2), tag: str = "t", series: int = 0, length: int = 1
) -> Part:
    return Part(v=np.array([v] * length), among=among, tag=tag, weight=weight, series=series)


@pytest.fixture
def meeting() -> ByHand:
    return ByHand(MeanServer, None, workers=3)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_a_part_without_weight_counts_nothing_even_if_it_is_nan(meeting: ByHand, order: tuple[int, ...]) -> None:
    parts = {0: part(4.0, 1.0), 1: part(np.nan, 0.0), 2: part(2.0, 1.0)}
    answers = [meeting.on(rank, parts[rank]) for rank in order]
    assert {rank: (float(mean.v[0]), mean.weight) for rank, mean in answers[-1].items()} == dict.fromkeys(
        order, (3.0, 2.0)
    )


def test_all_are_answered_with_the_weighted_mean_once_the_last_one_came(meeting: ByHand) -> None:
    assert meeting.on(2, part(1.0, weight=1.0)) == {}
    assert meeting.on(0, part(2.0, weight=2.0)) == {}
    answers = meeting.on(1, part(4.0, weight=5.0))
    assert set(answers) == {0, 1, 2}
    assert all(answer.v == [25 / 8] and answer.weight == 8 for answer in answers.values())
    assert not meeting.role.meetings


def test_meetings_of_another_tag_or_other_members_are_other_meetings(meeting: ByHand) -> None:
    assert meeting.on(0, part(1.0, among=(0, 1))) == {}
    assert meeting.on(2, part(2.0, among=(2,)))[2].v == [2.0]
    assert meeting.on(1, part(5.0, among=(0, 1)))[0].v == [3.0]
    assert meeting.on(1, part(3.0, among=(0, 1), tag="u")) == {}
    assert meeting.on(0, part(5.0, among=(0, 1), tag="u"))[1].v == [4.0]


def test_a_member_of_several_meetings_is_answered_in_the_order_in_which_it_asked() -> None:
    """A reply belongs to the oldest open question, and meetings may close in any order."""
    meeting = ByHand(MeanServer, SimpleNamespace(means_at_once=2), workers=3)
    assert meeting.on(0, part(1.0, among=(0, 1), tag="t")) == {}
    assert meeting.on(0, part(3.0, among=(0, 2), tag="u")) == {}
    assert set(meeting.on(2, part(9.0, among=(0, 2), tag="u"))) == {2}, "u is over, and 0 has asked for t before"
    replies = list(meeting.role.on(0.0, 1, part(7.0, among=(0, 1), tag="t")))
    assert [(reply.to, float(reply.message.v[0])) for reply in replies] == [(0, 4.0), (0, 6.0), (1, 4.0)]


@pytest.mark.parametrize("liar_is_first", [False, True])
def test_of_two_who_contradict_the_one_that_was_outvoted_before_is_not_followed(
    meeting: ByHand, liar_is_first: bool
) -> None:
    for rank, tag in ((2, "lie"), (0, "t/0"), (1, "t/0")):
        answers = meeting.on(rank, part(float(rank), tag=tag))
    assert {rank: answer.v[0] for rank, answer in answers.items()} == {0: 0.5, 1: 0.5, 2: 0.5}
    meeting.gone(1)
    said = [(2, "another lie"), (0, "t/1")] if liar_is_first else [(0, "t/1"), (2, "another lie")]
    for rank, tag in said:
        answers = meeting.on(rank, part(float(rank), tag=tag))
    assert {rank: (answer.v[0], answer.weight) for rank, answer in answers.items()} == {0: (0.0, 1.0), 2: (0.0, 1.0)}


def test_who_asks_later_for_what_was_outvoted_gets_what_those_got_who_asked_for_it(meeting: ByHand) -> None:
    """Else two honest workers would go on with different models: one that contradicts a liar, and a newcomer."""
    meeting.gone(0)
    assert meeting.on(2, part(7.0, tag="lie")) == {}
    answers = meeting.on(1, part(1.0, tag="t/1"))
    assert {rank: answer.v[0] for rank, answer in answers.items()} == {1: 7.0, 2: 7.0}
    assert meeting.on(2, part(7.0, tag="t/1")) == {2: answers[1]}, "the one whose mean it was, too"
    assert meeting.on(1, part(1.0, tag="t/1")) == {1: answers[1]}, "and who was outvoted, if it is restarted"
    meeting.came(0)
    assert meeting.on(0, part(5.0, tag="t/1")) == {0: answers[1]}
    assert meeting.on(1, part(1.0, tag="t/2")) == {}
    assert meeting.on(2, part(2.0, tag="t/2")) == {}
    assert set(meeting.on(0, part(3.0, tag="t/2"))) == {0, 1, 2}, "then all meet again"
    assert not meeting.role.settled


@pytest.mark.parametrize("asks_first", [False, True])
def test_who_asks_once_more_for_what_was_outvoted_is_not_waited_for(meeting: ByHand, asks_first: bool) -> None:
    """A liar did so at one server, and waited for an answer of another one, while the others waited here for it."""
    for rank, tag in ((0, "t/0"), (1, "t/0"), (2, "lie")):
        first = meeting.on(rank, part(float(rank), tag=tag))
    said = [(0, "t/1"), (1, "t/1")]
    for rank, tag in [(2, "lie"), *said] if asks_first else [*said, (2, "lie")]:
        answers = meeting.on(rank, part(float(rank), tag=tag))
        if rank == 2:
            assert answers.pop(2) is first[2], "the same answer as before"
            if not asks_first:
                break
    assert {rank: (answer.v[0], answer.weight) for rank, answer in answers.items()} == {0: (0.5, 2), 1: (0.5, 2)}
    assert meeting.on(2, part(9.0, tag="t/1")) == {2: answers[0]}, "it may come late"
    assert meeting.on(0, part(1.0, tag="t/2")) == meeting.on(1, part(2.0, tag="t/2")) == {}
    assert set(meeting.on(2, part(3.0, tag="t/2"))) == {0, 1, 2}, "and is waited for again"
    assert not meeting.role.insists


def test_a_newcomer_that_asks_for_what_only_its_former_incarnation_asked_for_is_not_waited_for(meeting: ByHand) -> None:
    """Whoever it takes over from has asked for something else."""
    for rank, tag in ((0, "t/0"), (1, "t/0"), (2, "lie")):
        first = meeting.on(rank, part(float(rank), tag=tag))
    meeting.gone(2)
    meeting.came(2)
    assert meeting.on(2, part(9.0, tag="lie")) == {2: first[2]}
    assert meeting.on(0, part(0.0, tag="t/1")) == {}
    answers = meeting.on(1, part(1.0, tag="t/1"))
    assert {rank: (answer.v[0], answer.weight) for rank, answer in answers.items()} == {0: (0.5, 2), 1: (0.5, 2)}


@pytest.mark.parametrize("times", [1, 2])
def test_who_goes_through_a_lost_mean_of_another_is_waited_for_the_first_time(meeting: ByHand, times: int) -> None:
    for rank, tag in ((0, "t/0"), (1, "t/0"), (2, "lie")):
        meeting.on(rank, part(float(rank), tag=tag))
    meeting.on(1, part(1.0, tag="t/1"))
    for _ in range(times):
        assert set(meeting.on(0, part(0.0, tag="lie"))) == {0}
    assert set(meeting.on(2, part(2.0, tag="t/1"))) == (set() if times == 1 else {1, 2})


def test_one_that_insists_and_one_that_lies_elsewhere_stop_nobody() -> None:
    meeting, all4 = ByHand(MeanServer, None, workers=4), (0, 1, 2, 3)
    for rank, tag in ((0, "t/0"), (1, "t/0"), (2, "lie"), (3, "other"), (2, "lie")):
        meeting.on(rank, part(float(rank), tag=tag, among=all4))
    for rank, tag in ((0, "t/1"), (1, "t/1"), (3, "lies on")):
        answers = meeting.on(rank, part(float(rank), tag=tag, among=all4))
    assert {rank: answer.v[0] for rank, answer in answers.items()} == {0: 0.5, 1: 0.5, 3: 0.5}


def test_a_newcomer_takes_over_where_one_is_that_lies_about_it(meeting: ByHand) -> None:
    """What that one had missed may be what the next newcomer begins with; else it would be behind for ever."""
    for rank in range(3):
        first = meeting.on(rank, part(float(rank), tag="t/0"))
    meeting.gone(2)
    meeting.on(1, part(1.0, tag="t/1"))
    meeting.came(2)
    assert meeting.on(2, part(0.0, weight=0.0, tag="lie")) == {}, "its model is that from before t/0"
    second = meeting.on(0, part(0.0, tag="t/1"))
    meeting.gone(1)
    meeting.came(1)
    assert meeting.on(1, part(0.0, weight=0.0, tag="t/0")) == {1: first[0]}
    assert meeting.on(1, part(0.0, weight=0.0, tag="t/1")) == {1: second[0]}
    meeting.on(1, part(1.0, tag="t/2"))
    assert set(meeting.on(0, part(3.0, tag="t/2"))) == {0, 1, 2}, "by a vote"
    assert meeting.role.passed.keys() == {2}, "kept until it is in a mean like the others"


def test_a_mean_that_closed_without_a_newcomer_is_kept_for_it_whatever_it_has_asked_first(meeting: ByHand) -> None:
    """Else it would wait here for that mean, and the others at another server for its part in the next one."""
    meeting.gone(0)
    assert meeting.on(2, part(2.0, tag="t/2")) == {}
    meeting.came(0)
    assert meeting.on(0, part(0.0, weight=0.0, tag="lie")) == {}
    answers = meeting.on(1, part(4.0, tag="t/2"))
    assert {rank: answer.v[0] for rank, answer in answers.items()} == {1: 3.0, 2: 3.0}, "it was not expected"
    assert meeting.on(0, part(9.0, tag="t/2")) == {0: answers[1]}
    assert meeting.on(0, part(1.0, tag="t/3")) == {}
    assert not meeting.role.settled


def test_who_has_left_since_still_says_which_mean_is_the_right_one() -> None:
    """Of the two who are left one lies, and the other one's mean has the part of a third."""
    meeting, all4 = ByHand(MeanServer, None, workers=4), (0, 1, 2, 3)
    for rank, tag in ((2, "lie"), (0, "t/1"), (3, "t/1")):
        assert meeting.on(rank, part(float(rank), among=all4, tag=tag)) == {}
    assert meeting.gone(0) == {}
    answers = meeting.gone(1)
    assert {rank: (answer.v[0], answer.weight) for rank, answer in answers.items()} == {2: (1.5, 2.0), 3: (1.5, 2.0)}


def test_who_is_one_round_behind_the_others_meets_them_again(meeting: ByHand) -> None:
    meeting.on(0, part(1.0, tag="t/5"))
    meeting.on(1, part(3.0, tag="t/5"))
    answers = meeting.on(2, part(9.0, tag="t/4"))
    assert {rank: answer.v[0] for rank, answer in answers.items()} == {0: 2.0, 1: 2.0, 2: 2.0}
    assert meeting.on(2, part(9.0, tag="t/5"))[2].v[0] == 2.0
    for rank in (0, 1):
        assert meeting.on(rank, part(1.0, tag="t/6")) == {}
    assert set(meeting.on(2, part(1.0, tag="t/6"))) == {0, 1, 2}


@pytest.mark.parametrize("other", [{"series": 1, "length": 1}, {"series": 0, "length": 2}])
def test_nobody_gets_the_mean_of_another_fragment(meeting: ByHand, other: dict[str, int]) -> None:
    meeting.on(0, part(1.0, tag="t/5"))
    meeting.on(1, part(3.0, tag="t/5"))
    answers = meeting.on(2, part(9.0, tag="t/4", **other))
    assert {rank: (answer.v[0], len(answer.v)) for rank, answer in answers.items()} == {
        **dict.fromkeys((0, 1), (2.0, 1)),
        2: (9.0, other["length"]),
    }
    assert answers[2].series == other["series"]


def test_where_another_waits_for_it_only_later_what_is_outvoted_stays_open() -> None:
    meeting, all4 = ByHand(MeanServer, SimpleNamespace(means_at_once=2), workers=4), (0, 1, 2, 3)
    for rank, first, second in ((0, "t/1", "t/2"), (1, "t/1", "a lie"), (2, "t/1", "another"), (3, "t/2", "t/3")):
        assert meeting.on(rank, part(float(rank), tag=first, among=all4)) == {}
        answers = meeting.on(rank, part(float(rank), tag=second, among=all4))
    assert {rank: answer.v[0] for rank, answer in answers.items()} == dict.fromkeys(all4, 1.0)
    assert "t/2" in meeting.role.meetings, "0 waits for it, and 3 has its part in it"


def test_a_member_that_asks_again_for_an_earlier_mean_holds_up_nobody(meeting: ByHand) -> None:
    for rank in range(3):
        meeting.on(rank, part(1.0))
    meeting.on(0, part(2.0, tag="next"))
    assert set(meeting.on(0, part(1.0))) == {0}, "it was restarted, and begins with the mean before"
    meeting.on(1, part(2.0, tag="next"))
    assert set(meeting.on(2, part(5.0, tag="next"))) == {1, 2}
    assert meeting.on(0, part(2.0, tag="next"))[0].v == [3.0]


def test_who_has_passed_is_expected_in_no_open_meeting(meeting: ByHand) -> None:
    assert meeting.on(0, part(1.0, tag="t")) == {}
    assert meeting.on(1, part(3.0, tag="t")) == {}
    assert {reply.to: reply.message.v[0] for reply in meeting.role.passes(2)} == {0: 2.0, 1: 2.0}
    assert meeting.on(2, part(9.0, tag="t"))[2].v == [2.0], (
        "if it comes after all it gets the result, and is not counted"
    )
    assert list(meeting.role.passes(2)) == []


def test_who_leaves_is_not_waited_for(meeting: ByHand) -> None:
    meeting.on(0, part(1.0))
    meeting.on(1, part(3.0))
    answers = meeting.gone(2)
    assert {rank: answer.v[0] for rank, answer in answers.items()} == {0: 2.0, 1: 2.0}
    assert meeting.on(0, part(1.0, tag="next")) == {}
    assert set(meeting.on(1, part(1.0, tag="next"))) == {0, 1}


def test_what_was_brought_before_leaving_counts_and_is_not_answered(meeting: ByHand) -> None:
    meeting.on(2, part(9.0))
    assert meeting.gone(2) == {}
    meeting.on(0, part(1.0))
    answers = meeting.on(1, part(2.0))
    assert set(answers) == {0, 1}
    assert answers[0].v == [4.0]


def test_what_was_brought_before_all_were_lost_is_not_met_by_those_who_begin_anew(meeting: ByHand) -> None:
    """Newcomers that found nobody to follow come to the tags of the beginning once more."""
    for rank in (2, 1):
        meeting.gone(rank)
    meeting.came(1)
    assert meeting.on(0, part(9.0)) == {}
    meeting.gone(0)
    meeting.came(0)
    assert meeting.on(1, part(1.0)) == {}, "the other newcomer has not come to it yet"
    assert meeting.on(0, part(3.0))[1].v == [2.0]


def test_who_begins_anew_gets_no_mean_of_those_who_are_all_gone(meeting: ByHand) -> None:
    """A newcomer came before the last of them was lost, and another one after it."""
    for tag in ("t/0", "t/1"):
        for rank in range(3):
            meeting.on(rank, part(9.0, tag=tag))
    for rank in (0, 1):
        meeting.gone(rank)
    meeting.came(1)
    meeting.gone(2)
    meeting.role.forget_former()
    meeting.came(0)
    assert meeting.on(1, part(1.0, tag="t/0")) == {}
    meeting.came(2)
    assert meeting.on(0, part(3.0, tag="t/0"))[1].v == [2.0]
    assert meeting.on(2, part(5.0, tag="t/0"))[2].v == [2.0], "this one closed without it"
    assert meeting.on(2, part(5.0, tag="t/1")) == {}, "and this one is open yet"


def test_a_repeat_is_counted_once(meeting: ByHand) -> None:
    meeting.on(0, part(1.0))
    assert meeting.on(0, part(7.0)) == {}
    meeting.on(1, part(2.0))
    assert meeting.on(2, part(3.0))[0].v == [2.0]


def test_who_asks_again_after_the_meeting_gets_the_same_answer(meeting: ByHand) -> None:
    for rank in (0, 1):
        meeting.on(rank, part(1.0))
    result = meeting.on(2, part(4.0))[1]
    assert meeting.on(1, part(100.0)) == {1: result}
    assert meeting.on(1, part(1.0, tag="next")) == {}


def test_nothing_at_all_averages_to_nothing(meeting: ByHand) -> None:
    for rank in (0, 1):
        meeting.on(rank, part(1.0, weight=0.0))
    answer = meeting.on(2, part(1.0, weight=0.0))[0]
    assert (answer.v, answer.weight) == ([0.0], 0.0)


def test_what_is_no_part_is_refused(meeting: ByHand) -> None:
    with pytest.raises(TypeError, match="MeanServer got str, which it does not take"):
        meeting.on(0, "hello")


@dataclass(frozen=True, kw_only=True)
class TwoAtOnce(Scheme):
    means_at_once = 2


def test_as_many_results_are_kept_as_a_restarted_member_may_ask_for_again() -> None:
    for scheme, again in ((None, [None, 2.0]), (TwoAtOnce(), [1.0, 2.0])):
        meeting = ByHand(MeanServer, scheme, workers=2)
        for tag, v in (("t", 1.0), ("u", 2.0)):
            for rank in (0, 1):
                answers = meeting.on(rank, part(v, among=(0, 1), tag=tag))
        assert set(answers) == {0, 1}
        repeated = [meeting.on(0, part(v, among=(0, 1), tag=tag)).get(0) for tag, v in (("t", 1.0), ("u", 2.0))]
        assert [answer and answer.v[0] for answer in repeated] == again


def test_what_is_forgotten_is_held_no_longer(meeting: ByHand) -> None:
    for rank in range(3):
        meeting.on(rank, part(1.0, tag="initial"))
    meeting.role.forget("initial")
    assert not any(meeting.role.closed.values())
    for rank in range(3):
        meeting.on(rank, part(2.0, tag="later"))
    meeting.role.forget("initial")
    assert [[kept.tag for kept in meeting.role.closed[rank]] for rank in range(3)] == [["later"]] * 3


def test_where_no_model_counts_the_first_is_the_model() -> None:
    one, other = np.array([1.0]), np.array([5.0])
    assert mean_model([(one, 0.0), (other, 0.0)]) == one
    assert mean_model([(one, 0.0), (other, 2.0)]) == other
    assert mean_model([(one, 1.0), (other, 3.0)]) == [4.0]


# ---- parts of another length -------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [(2, 0, 1), (0, 2, 1), (0, 1, 2)])
def test_a_part_of_another_length_than_most_is_left_out_whoever_came_first(order: tuple[int, ...]) -> None:
    refused: list[tuple[int, str]] = []
    meeting = ByHand(MeanServer, None, workers=3, refuses=lambda rank, why: refused.append((rank, why)))
    for rank in order:
        answers = meeting.on(rank, part(float(rank), length=3 if rank == 2 else 4))
    assert {rank: list(answer.v) for rank, answer in answers.items()} == dict.fromkeys(range(3), [0.5] * 4)
    assert refused == [(2, "Part: the length of v is 3, which is 4 in most others")]


def test_where_nobody_has_a_majority_the_longest_wins_and_nobody_is_refused() -> None:
    refused: list[int] = []
    meeting = ByHand(MeanServer, None, workers=2, refuses=lambda rank, why: refused.append(rank))
    meeting.on(0, part(7.0, among=(0, 1), length=2))
    answers = meeting.on(1, part(3.0, among=(0, 1), length=4))
    assert {rank: list(answer.v) for rank, answer in answers.items()} == dict.fromkeys(range(2), [3.0] * 4)
    assert not refused
