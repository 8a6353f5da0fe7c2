"""This says in words for `paceline status` what the evaluator does.

The evaluator says when it has judged a model, and nothing else. What it does since then follows from how long it rests:
a long silence is a rest, or a judgement under way, and no sign that it hangs.
"""

from __future__ import annotations

from paceline.live.coordinator.lifecycle import RunPhase
from paceline.observe.formatting.number_format import accuracy_text, seconds_text

JUDGING, JUDGING_TO_TARGET = 0.5, 0.25
"""Of its time the evaluator judges at most so much; less where snapshots tell what came between."""


def rest_s(took: float, every: float, *, to_target: bool) -> float:
    """Returns how long the evaluator rests after an evaluation of `took` seconds; `every` is --eval-every."""
    return max(took * (1 / (JUDGING_TO_TARGET if to_target else JUDGING) - 1), every - took)


class EvaluationTimes:
    """When the evaluator judged last, and when it judges next. Moments are of one clock, in seconds."""

    def __init__(self, every: float, *, to_target: bool) -> None:
        self._every, self._to_target = every, to_target
        self._last: tuple[float, float] | None = None  # the moment at which it was told, and the accuracy
        self._next = 0.0
        self._began: float | None = None  # training

    def evaluated(self, now: float, accuracy: float, seconds: float) -> None:
        self._last = now, accuracy
        self._next = now + rest_s(seconds, self._every, to_target=self._to_target)

    def doing(self, now: float, state: str) -> str:
        """In this `state` of the run; empty where there is nothing to be said."""
        if state == RunPhase.FINISHING.value:
            return "judges and saves the last model"
        if state != RunPhase.TRAINING.value:
            return ""
        if self._began is None:
            self._began = now
        if self._last is None:
            return f"judges the first model, for {seconds_text(now - self._began)}"
        at, accuracy = self._last
        last = f"the last was {seconds_text(now - at)} ago: accuracy {accuracy_text(accuracy)}"
        if now < self._next:
            return f"waits for the next evaluation, in {seconds_text(self._next - now)}; {last}"
        return f"is judging since about {seconds_text(now - self._next)}; {last}"
