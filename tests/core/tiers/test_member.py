from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import COORDINATOR, Call
from paceline.core.errors import PeerLost
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import make
from paceline.core.tiers.messages import EnterGroup, Speaker, WhoSpeaks


@pytest.fixture
def member() -> Role:
    """Worker 2 of 0, 1 and 2 that are one group."""
    scheme = make("tiers", {"groups": "0,1,2;3,4", "inner": "bsp", "outer": "asp"})
    place = RoleContext(me=2, workers=(0, 1, 2, 3, 4), w=np.zeros(1), update=lambda w, g, samples: w)
    box = scheme.worker(1)
    return box(scheme, place)


def asks_after(run: Generator[Any, Any, None], value: Any = None) -> int:
    effect = run.send(value)
    assert isinstance(effect, Call)
    assert effect.to == COORDINATOR
    assert isinstance(effect.message, WhoSpeaks)
    return effect.message.after


def follows(effect: Any) -> int:
    assert isinstance(effect, Call)
    assert isinstance(effect.message, EnterGroup)
    assert isinstance(effect.to, int)
    return effect.to


def test_who_loses_its_speaker_asks_for_the_next_term(member: Role) -> None:
    run = member.run()
    assert asks_after(run) == 0
    assert follows(run.send(Speaker(rank=0, term=1))) == 0
    list(member.on_worker_left(0.0, 0))
    with pytest.raises(AssertionError):
        follows(run.throw(PeerLost("worker 0")))
    assert follows(run.send(Speaker(rank=1, term=2))) == 1


@pytest.mark.parametrize("returns", [False, True])
def test_an_answer_that_names_one_who_has_gone_since_is_asked_for_again(member: Role, returns: bool) -> None:
    """Its next incarnation would be called, which speaks for nobody, and both would wait for ever."""
    run = member.run()
    assert asks_after(run) == 0
    list(member.on_worker_left(0.0, 0))
    if returns:
        list(member.on_worker_joined(0.0, 0))
    assert asks_after(run, Speaker(rank=0, term=1)) == 0, "the same question: the answer may be the same, and be true"
    assert follows(run.send(Speaker(rank=0, term=3))) == 0


def test_that_another_one_has_gone_changes_nothing(member: Role) -> None:
    run = member.run()
    asks_after(run)
    list(member.on_worker_left(0.0, 1))
    assert follows(run.send(Speaker(rank=0, term=1))) == 0
