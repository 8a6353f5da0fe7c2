"""Quotas of samples at the coordinator, where a run ends after so many. The rules: `core/samples/sample_budget.py`."""

from __future__ import annotations

from paceline.core.errors import ProtocolError
from paceline.core.samples.sample_budget import Budget
from paceline.live.coordinator.lifecycle import StopRule
from paceline.live.coordinator.progress_totals import ProgressTotals
from paceline.live.protocol import control_messages as control


class Quotas:
    """What a worker has trained is what it told; what a lost one had not told any more is trained by others."""

    def __init__(self, stop_rule: StopRule, totals: ProgressTotals) -> None:
        self._budget = None if stop_rule.samples is None else Budget(stop_rule.samples - stop_rule.behind)
        self._totals = totals

    def quota(self, rank: int, ask: control.Ask, *, training: int) -> int:
        """For worker `rank`, where so many are training. Raises ProtocolError for what nobody can ask for."""
        if ask.samples < 1 or ask.batch < 1:
            raise ProtocolError(f"worker {rank} asks for {ask.samples} samples in mini-batches of {ask.batch}")
        return self._budget.quota(rank, ask.samples, ask.batch, training) if self._budget else 0

    def gone(self, rank: int) -> None:
        """This incarnation of worker `rank` is over."""
        if self._budget is not None:
            self._budget.settle(rank, self._totals.of(rank))
