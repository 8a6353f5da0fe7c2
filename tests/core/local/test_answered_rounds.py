"""Who asks for a part of a round is answered once it is sent, or never will be."""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.core.effects import Reply
from paceline.core.local.answered_rounds import AnsweredRounds, RoundSent
from paceline.core.role import RoleContext
from paceline.core.scheme import make


def worker() -> AnsweredRounds:
    place = RoleContext(me=0, workers=(0, 1, 2), w=np.zeros(1), update=lambda w, g, n: w - g)
    return AnsweredRounds(make("prague", {}), place)


def ask(role: AnsweredRounds, src: int, number: int) -> list[Any]:
    return list(role.on(0.0, src, RoundSent(round=number)))


def test_a_question_waits_until_the_part_is_sent() -> None:
    role = worker()
    assert ask(role, 1, 4) == []
    assert ask(role, 2, 5) == []
    role.told = 5
    assert list(role.answer_who_asked()) == [Reply(1, RoundSent(round=4))]
    role.told = 6
    assert list(role.answer_who_asked()) == [Reply(2, RoundSent(round=5))]
    assert ask(role, 1, 5) == [Reply(1, RoundSent(round=5))]


def test_a_worker_that_has_finished_lets_everybody_go() -> None:
    role = worker()
    assert ask(role, 1, 4) == []
    assert list(role.finish(0.0)) == [Reply(1, RoundSent(round=4))]
    assert ask(role, 2, 9) == [Reply(2, RoundSent(round=9))]


def test_who_has_left_is_not_answered() -> None:
    role = worker()
    assert ask(role, 1, 4) == []
    assert list(role.on_worker_left(0.0, 1)) == []
    role.told = 5
    assert list(role.answer_who_asked()) == []


def test_who_asks_between_two_answers_is_answered_too() -> None:
    role = worker()
    role.told = 1
    role.asked = {1: 0}
    answers = role.answer_who_asked()
    assert next(answers) == Reply(1, RoundSent(round=0))
    role.asked[2] = 0
    assert list(answers) == [Reply(2, RoundSent(round=0))]
