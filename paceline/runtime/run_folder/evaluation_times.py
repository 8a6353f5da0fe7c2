"""Says for `paceline status` what the evaluator does.

The evaluator reports an evaluation when it is over, and nothing else. What it does since then follows from how long
it rests: a long silence is a rest, or an evaluation under way, and no sign that it hangs.
"""

from __future__ import annotations

from paceline.core.coordination.lifecycle import RunPhase
from paceline.observe.formatting.number_format import accuracy_text, seconds_text

JUDGING, JUDGING_TO_TARGET = 0.5, 0.25
"""The largest share of its time that the evaluator spends on evaluations; less where snapshots fill the gaps."""


def rest_s(took: float, every: float, *, to_target: bool) -> float:
    """Returns the seconds that the evaluator rests after an evaluation of `took` seconds; `every` is --eval-every."""
    return max(took * (1 / (JUDGING_TO_TARGET if to_target else JUDGING) - 1), every - took)


class EvaluationTimes:
    """Remembers when the evaluator reported last, and when it evaluates next. Moments are of one clock, in seconds."""

    def __init__(self, every: float, *, to_target: bool) -> None:
        self._every, self._to_target = every, to_target
        self._last: tuple[float, float] | None = None  # the moment at which it was told, and the accuracy
        self._next = 0.0
        self._began: float | None = None  # training

    def evaluated(self, now: float, accuracy: float, seconds: float) -> None:
        """Notes an evaluation that took `seconds` and was reported `now`."""
        self._last = now, accuracy
        self._next = now + rest_s(seconds, self._every, to_target=self._to_target)

    def doing(self, now: float, state: str) -> str:
        """Returns what the evaluator does in this `state` of the run; "" where there is nothing to say."""
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
