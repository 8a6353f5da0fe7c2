"""Names a worker that makes no step for long while others wait for it.

Its loop may evaluate, load data, or clear every gradient: it is alive, so it stays. But nobody else would learn why all
of them stand still.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.coordination.lifecycle import RunContext
from paceline.core.coordination.party import COORDINATOR, Party
from paceline.core.fault_tolerance.membership import FIRST_STEP
from paceline.core.trace import NO_STEPS, Decided

NAMED_AFTER_S = 30.0
NAMED_AFTER_STEPS = 20.0
"""A worker is named after so many seconds without a step, and after so many of its usual steps."""


@dataclass(slots=True)
class _Seen:
    """Describes a worker as of its last report: its steps, since when it has made no more, and where it is."""

    steps: int
    since: float
    seconds_in_loop: float


class Standstill:
    """Watches the reports of all workers."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._seen: dict[Party, _Seen] = {}
        self._named: set[Party] = set()

    def progressed(self, who: Party, steps: int, usual_s: float, seconds_in_loop: float) -> None:
        """Takes a report of `who`, whose steps take `usual_s` each; names it, once, where others wait for it."""
        now, seen = self._run.now(), self._seen.get(who)
        since = now if seen is None or seen.steps != steps else seen.since
        self._seen[who] = _Seen(steps, since, seconds_in_loop)
        limit = max(NAMED_AFTER_S, NAMED_AFTER_STEPS * usual_s) * (1.0 if steps else FIRST_STEP)
        if seconds_in_loop <= limit or who in self._named or who not in self._run.roster.training:
            return
        waiting = [other.index for other in sorted(self._run.roster.training - {who}) if self._waits(other, now)]
        if waiting:
            self._named.add(who)
            whom = f"worker {waiting[0]} waits" if len(waiting) == 1 else f"{len(waiting)} workers wait"
            reason = f"its loop has been without pace.step() for {seconds_in_loop:.0f} s, and {whom} for it"
            self._run.decide.record(
                Decided(at=now, party=str(COORDINATOR), rank=who.index, verdict=NO_STEPS, reason=reason)
            )

    def _waits(self, who: Party, now: float) -> bool:
        """Returns True if `who` has been handing over the same step for long."""
        seen = self._seen.get(who)
        return seen is not None and not seen.seconds_in_loop and now - seen.since > NAMED_AFTER_S
