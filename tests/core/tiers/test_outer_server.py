import numpy as np
import pytest

from paceline.core.errors import Diverged
from paceline.core.paramserver.gated_server import Pull, Push
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.scheme import make
from paceline.core.tiers.messages import Speaks
from paceline.core.tiers.outer_server import OuterServer
from tests.role_driver import ByHand


def server(outer: str, groups: str = "0,1;2,3") -> ByHand:
    return ByHand(OuterServer, make("tiers", {"outer": outer, "groups": groups}), 4)


def push(s: ByHand, src: int, clock: int, g: float = 1.0, samples: int = 1) -> dict:
    return s.on(src, Push(g=np.array([g]), clock=clock, samples=samples))


def speaking(outer: str) -> ByHand:
    """Workers 0 and 2 speak for their groups."""
    s = server(outer)
    for rank in (0, 2):
        assert set(s.on(rank, Speaks())) == {rank}
        assert set(s.on(rank, Pull())) == {rank}
    return s


def test_a_group_is_one_worker_of_the_outer_scheme() -> None:
    s = speaking("bsp")
    assert push(s, 0, clock=1, g=2.0, samples=3) == {}
    assert set(push(s, 2, clock=1, g=6.0, samples=1)) == {0, 2}
    assert s.role.w == [-3.0]  # weighted by samples
    assert [(u.ranks, u.samples) for u in s.updates()] == [((0, 1, 2, 3), 4)]


def test_who_does_not_speak_is_not_heard() -> None:
    s = speaking("asp")
    assert push(s, 1, clock=1) == {}
    assert s.role.w == [0.0]


def test_another_speaker_is_a_fresh_worker_once_the_last_one_is_gone() -> None:
    s = speaking("asp")
    push(s, 0, clock=1)
    assert s.on(1, Speaks()) == {}  # 0 may live
    assert set(s.gone(0)) == {1}
    assert set(push(s, 1, clock=1)) == {1}  # its clock begins anew
    assert s.role.w == [-2.0]
    assert push(s, 0, clock=2) == {}


def test_who_spoke_once_has_no_say_in_whether_the_model_has_diverged() -> None:
    gate = GradientCheckPolicy().gate(lambda v, onto: float(np.linalg.norm(v)), 4, 0, None)
    s = ByHand(OuterServer, make("tiers", {"outer": "asp", "groups": "0,1;2,3"}), 4, gate=gate)
    for rank in (0, 2):
        s.on(rank, Speaks())
        push(s, rank, clock=1)
    s.on(1, Speaks())
    s.gone(0)
    with pytest.raises(Diverged):
        for clock in range(2, 40):
            push(s, 1, clock, g=np.nan)
            push(s, 2, clock, g=np.nan)


def test_a_member_that_is_lost_does_not_speak_for_its_group() -> None:
    s = server("asp")
    s.gone(0)
    assert s.on(0, Speaks()) == {}
    assert set(s.on(1, Speaks())) == {1}


def test_others_do_not_wait_for_a_group_that_is_gone_as_a_whole() -> None:
    s = speaking("bsp")
    assert push(s, 2, clock=1) == {}
    assert s.gone(0) == {}  # worker 1 will speak
    assert set(s.gone(1)) == {2}
    assert s.role.w == [-1.0]


def test_a_group_that_was_gone_takes_part_again_when_somebody_speaks_for_it() -> None:
    s = speaking("bsp")
    s.gone(0)
    s.gone(1)
    push(s, 2, clock=1)
    s.came(1)
    assert set(push(s, 2, clock=2)) == {2}  # announced, and not there yet
    assert set(s.on(1, Speaks())) == {1}
    assert push(s, 2, clock=3) == {}
    assert set(push(s, 1, clock=1)) == {1, 2}


def test_staleness_is_that_of_the_weights_that_a_speaker_was_given() -> None:
    s = speaking("asp(weighting=inverse)")
    for clock in (1, 2, 3):
        push(s, 0, clock)
    push(s, 2, clock=1)
    assert [(u.ranks, u.staleness, u.weight) for u in s.updates()][-1] == ((2, 3), 3, 0.25)
