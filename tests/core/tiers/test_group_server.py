import numpy as np

from paceline.core.adaptive.regrouping import Timed
from paceline.core.collective.mean_server import Averaged, Part
from paceline.core.effects import Reply
from paceline.core.paramserver.gated_server import Pull, Push, Weights
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.tiers.group_server import CLOSED, DONE, OPEN, AveragingGroup, ClockedGroup, GradientMean
from paceline.core.tiers.messages import AwaitGroup, EnterGroup, GroupBegin, RoundBegin, RoundOver

W = np.zeros(1)
ME = 0


def place(members: int) -> RoleContext:
    return RoleContext(me=0, workers=tuple(range(members)), w=None, update=lambda w, g, samples: w - g)


def clocked(inner: str, members: int = 2, **parameters: object) -> ClockedGroup:
    scheme = make(inner, parameters)
    box = scheme.server(1)
    return ClockedGroup(scheme, place(members), ME, set(range(members)), box=box)  # type: ignore[arg-type]


def said(effects: object) -> dict:
    return {effect.to: effect.message for effect in effects if isinstance(effect, Reply)}  # type: ignore[attr-defined]


def push(g: float, clock: int = 1, samples: int = 1) -> Push:
    return Push(g=np.array([g]), clock=clock, samples=samples)


def opened(group: ClockedGroup, steps: int) -> ClockedGroup:
    """Every member has entered, and has the first weights."""
    for member in group.members:
        said(group.on(0.0, member, EnterGroup(turn=0)))
    said(group.open(W, steps))
    for member in group.members:
        assert isinstance(said(group.on(0.0, member, Pull()))[member], Weights)
    return group


def test_members_that_enter_wait_for_the_first_weights() -> None:
    group = clocked("bsp")
    assert said(group.on(0.0, 1, EnterGroup(turn=0))) == {}
    assert said(group.open(W, 3)) == {1: GroupBegin(steps=3)}


def test_the_group_is_done_after_as_many_rounds_as_were_asked_for() -> None:
    group = opened(clocked("bsp"), steps=2)
    for clock in (1, 2):
        said(group.on(clock, ME, push(1.0, clock)))
        assert group.state == OPEN
        answers = said(group.on(clock, 1, push(3.0, clock)))
        assert set(answers) == ({0, 1} if clock == 1 else {ME})
    assert answers == {ME: RoundOver()}  # the other member waits for the next weights
    assert (group.state, group.server.w, group.samples) == (DONE, [-4.0], 4)  # type: ignore[union-attr]
    assert (group.began, group.ended) == (0.0, 2)


def test_at_the_next_weights_all_who_wait_are_answered() -> None:
    group = opened(clocked("bsp"), steps=1)
    said(group.on(1.0, 1, push(1.0)))
    said(group.on(2.0, ME, push(1.0)))
    group.take()
    answers = said(group.open(np.array([7.0]), 1))
    assert set(answers) == {1}
    assert answers[1].w == [7.0]
    assert said(group.on(3.0, ME, Pull()))[ME].w == [7.0]


def test_without_lock_step_members_work_on_until_the_speaker_takes_the_result() -> None:
    group = opened(clocked("asp"), steps=1)
    for clock in (1, 2):
        assert set(said(group.on(clock, 1, push(1.0, clock)))) == {1}
    assert group.state == DONE  # as many pushes as there are members
    assert set(said(group.on(3.0, 1, push(1.0, clock=3)))) == {1}
    assert group.samples == 3
    group.take()
    assert said(group.on(4.0, 1, push(1.0, clock=4))) == {}  # else it would be lost
    assert group.server.w == [-3.0]  # type: ignore[union-attr]
    answers = said(group.open(W, 1))
    assert answers[1].w == [-1.0]


def test_a_speaker_that_its_scheme_holds_back_hears_that_the_round_is_over() -> None:
    group = opened(clocked("ssp", members=3, staleness=0), steps=1)
    assert said(group.on(1.0, ME, push(1.0))) == {}
    said(group.on(1.0, 1, push(1.0)))
    assert said(group.on(2.0, 2, push(1.0)))[ME] == RoundOver()


def test_a_member_that_leaves_may_end_the_round() -> None:
    group = opened(clocked("bsp"), steps=1)
    said(group.on(1.0, ME, push(5.0)))
    assert said(group.leaves(2.0, 1)) == {ME: RoundOver()}
    assert group.state == DONE


def test_every_call_of_a_speaker_that_trains_no_more_is_answered() -> None:
    """One that it made before would take the answer of the next one: an answer is that of the oldest open call."""
    group = opened(clocked("gsp"), steps=1)
    assert said(group.retires(1.0)) == {}
    assert said(group.on(1.1, ME, Timed(done=0, seconds=1.0))) == {ME: RoundOver()}
    assert said(group.on(1.2, ME, AwaitGroup())) == {}
    assert said(group.on(1.3, 1, push(1.0))) == {1: group.server.answer(1, True), ME: RoundOver()}  # type: ignore[union-attr]


def test_nobody_else_gets_an_answer_once_it_has_left() -> None:
    group = opened(clocked("bsp"), steps=1)
    said(group.leaves(1.0, 1))
    assert said(group.on(1.1, 1, push(1.0))) == {}
    said(group.leaves(1.2, ME))  # its message was refused, which is no end of its work
    assert said(group.on(1.3, ME, push(1.0))) == {}


def test_one_that_comes_back_is_expected_again() -> None:
    group = opened(clocked("bsp"), steps=1)
    said(group.leaves(1.0, 1))
    said(group.joins(2.0, 1))
    assert said(group.on(3.0, ME, push(1.0))) == {}
    assert set(said(group.on(3.0, 1, EnterGroup(turn=0)))) == {1}


def test_a_gradient_is_the_mean_of_all_and_moves_no_weights() -> None:
    scheme = make("bsp", {})
    group = opened(ClockedGroup(scheme, place(2), ME, {0, 1}, box=GradientMean), steps=1)
    said(group.on(1.0, 1, push(1.0, samples=3)))
    said(group.on(1.0, ME, push(5.0, samples=1)))
    assert isinstance(group.server, GradientMean)
    assert (group.server.g, group.server.samples, group.server.w) == ([2.0], 4, [0.0])


def averaging(members: int = 2) -> AveragingGroup:
    return AveragingGroup(make("localsgd", {}), place(members), ME, set(range(members)))


def enters(group: AveragingGroup, member: int, turn: int = 0) -> dict:
    return said(group.on(0.0, member, EnterGroup(turn=turn)))


def part(member: int, among: tuple[int, ...] = (0, 1)) -> Part:
    return Part(v=np.array([float(member)]), among=among, tag="localsgd/0", weight=1.0)


def test_members_that_average_begin_together() -> None:
    group = averaging()
    said(group.open(W, 3))
    assert enters(group, 0) == {}
    begin = RoundBegin(w=W, turn=1, steps=3, casts=1, cast=(0, 1))
    assert enters(group, 1) == {0: begin, 1: begin}
    assert said(group.on(1.0, 0, part(0))) == {}
    mean = said(group.on(1.0, 1, part(1)))
    assert mean == {member: Averaged(v=np.array([0.5]), weight=2.0) for member in (0, 1)}


def test_one_that_was_restarted_is_told_the_round_again() -> None:
    group = averaging()
    said(group.open(W, 1))
    enters(group, 0)
    enters(group, 1)
    assert enters(group, 1)[1].turn == 1
    assert enters(group, 1, turn=1) == {}  # this one has finished it


def test_who_has_ended_the_round_is_expected_in_none_of_its_means() -> None:
    """A liar may have named a mean that is closed in place of the last one."""
    group = averaging()
    said(group.open(W, 1))
    enters(group, 0)
    enters(group, 1)
    assert said(group.on(1.0, 1, part(1))) == {}
    assert enters(group, 0, turn=1) == {1: Averaged(v=np.array([1.0]), weight=1.0)}


def test_nor_is_it_expected_in_a_mean_that_begins_later() -> None:
    group = averaging()
    said(group.open(W, 1))
    enters(group, 0)
    enters(group, 1)
    assert enters(group, 0, turn=1) == {}
    assert said(group.on(1.0, 1, part(1))) == {1: Averaged(v=np.array([1.0]), weight=1.0)}


def test_a_newcomer_is_in_the_next_cast() -> None:
    group = averaging()
    said(group.open(W, 1))
    enters(group, 0)
    enters(group, 1)
    said(group.leaves(1.0, 1))
    said(group.joins(2.0, 1))
    assert enters(group, 1) == {}
    group.take()
    said(group.open(W, 1))
    assert {to: (begin.casts, begin.cast) for to, begin in enters(group, 0, turn=1).items()} == {
        0: (2, (0, 1)),
        1: (2, (0, 1)),
    }


def test_the_same_work_of_a_restarted_speaker_goes_on() -> None:
    group = opened(clocked("bsp"), steps=1)
    said(group.on(1.0, 1, push(1.0)))
    assert said(group.open(W, 1)) == {}
    assert set(said(group.on(1.0, ME, push(1.0)))) == {ME}
    assert group.state == DONE
    group.take()
    assert group.state == CLOSED
