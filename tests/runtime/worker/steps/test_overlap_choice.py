"""Which steps of a worker overlap: those that can, as long as they are tried or faster, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from paceline.core.effects import Compute, Train
from paceline.runtime.worker.steps.local_work import LocalWork
from paceline.runtime.worker.steps.overlap import Overlap
from paceline.runtime.worker.steps.overlap_choice import OverlapChoice
from paceline.runtime.worker.steps.overlap_trial import BLOCK, TRIED_MAX, WARM_UP, OverlapTrial, TrialResult

STEPS_MAX = WARM_UP + TRIED_MAX
STREAMS = Compute(0.0, 1, None, True)


class Loop:
    """A loop in which steps take `seconds` with overlap and 0.25 without, by a clock of its own."""

    def __init__(self, seconds: float, *, trial: bool = True) -> None:
        self.now, self.made, self.results = 0.0, list[Mock](), list[TrialResult]()
        self._seconds, self.work = seconds, Mock(spec=LocalWork)
        self.choice = OverlapChoice(
            self._make, self.work, OverlapTrial() if trial else None, self.results.append, lambda: self.now
        )

    def _make(self) -> Any:
        self.made.append(Mock(spec=Overlap))
        return self.made[-1]

    def steps(self, count: int, wanted: Callable[[int], Compute | Train] = lambda _: STREAMS) -> list[bool]:
        """Makes so many steps; returns which overlapped."""
        seen = []
        for i in range(count):
            self.choice.turn()
            late = self.work.late
            self.choice.prepare(wanted(i))
            seen.append(self.choice.now is not None)
            assert late or not seen[-1]
            self.now += self._seconds if seen[-1] else 0.25
        return seen


def test_steps_that_are_faster_with_overlap_overlap_from_then_on() -> None:
    loop = Loop(0.2)
    tried = loop.steps(STEPS_MAX + 1)  # the seconds of a step are known when the next begins
    assert {*tried[:WARM_UP]} == {False}
    assert loop.steps(20) == [True] * 20
    assert [result.overlaps for result in loop.results] == [True]
    loop.made[0].end.assert_not_called()


def test_the_hooks_of_an_overlap_that_has_lost_are_removed_and_no_weights_are_late() -> None:
    loop = Loop(0.3)
    loop.steps(STEPS_MAX + 1)
    assert [result.overlaps for result in loop.results] == [False]
    loop.made[0].end.assert_called_once_with()
    assert loop.steps(20) == [False] * 20
    assert len(loop.made) == 1
    assert loop.work.late is False


def test_every_step_overlaps_where_that_is_not_in_question() -> None:
    loop = Loop(0.5, trial=False)
    assert loop.steps(STEPS_MAX + 20) == [True] * (STEPS_MAX + 20)
    assert loop.results == []


@pytest.mark.parametrize("wanted", [Train(0.0, 1), Compute(0.0, 1), Compute(0.0, 2, None, True)])
@pytest.mark.parametrize("trial", [True, False])
def test_a_scheme_whose_gradients_do_not_stream_pays_for_no_hook(wanted: Compute | Train, trial: bool) -> None:
    loop = Loop(0.2, trial=trial)
    loop.steps(2 * STEPS_MAX, lambda _: wanted)
    assert loop.made == []
    assert loop.results == []


def test_steps_that_cannot_overlap_are_not_counted_among_those_that_are_tried() -> None:
    """Every third step is local; were its seconds counted, there would be a result sooner."""
    loop = Loop(0.2)
    loop.steps(STEPS_MAX, lambda i: Train(0.0, 1) if i % 3 == 2 else STREAMS)
    assert loop.results == []
    loop.steps(STEPS_MAX, lambda i: Train(0.0, 1) if i % 3 == 2 else STREAMS)
    assert [result.overlaps for result in loop.results] == [True]


def test_a_trial_that_cannot_be_won_is_given_up_after_two_pairs() -> None:
    loop = Loop(0.5)
    loop.steps(WARM_UP + 4 * BLOCK)
    assert loop.results == []
    loop.steps(1)
    assert len(loop.results) == 1


def test_the_end_removes_the_hooks_in_the_middle_of_a_trial() -> None:
    loop = Loop(0.2)
    loop.steps(WARM_UP + BLOCK + 1)
    loop.choice.end()
    loop.made[0].end.assert_called_once_with()
    assert loop.choice.now is None
    assert loop.steps(5) == [False] * 5
