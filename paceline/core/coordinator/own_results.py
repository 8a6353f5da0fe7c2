"""Judges workers by what they say of their own results, where no server sees these.

    a result of a worker                       then
    is not finite                              a record of the trace, and a strike
    is not finite, and so are the last of all  once they are REFUSED_IN_A_ROW of each, the model has diverged: the run
    others that train                          fails
    makes `strikes` of its last STRIKES_OF     it is expelled, if the results of more others are finite than not
    is finite again                            the model has not diverged; the strikes stay

Servers judge in the same way (`paceline.core.paramserver.gradient_check`). They see each contribution; here a worker
says nothing as long as its results are finite. So another's count as finite if it has not said otherwise and has
finished one since the first of those strikes: its exchanges have grown in two reports. A mean needs no such proof,
since all took part in it, and it fails if nobody's part is finite (`nobody_counts`).

Where no server sees results, workers need one another's processes, for means, or to hand over their mass. So a worker
is expelled by setting it aside: it leaves training after its step, and its process stays where the run needs it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from paceline.core.coordination import loop_messages
from paceline.core.coordination.elasticity import Elasticity
from paceline.core.coordination.lifecycle import OwnResultRule, RunContext
from paceline.core.coordination.party import Party
from paceline.core.paramserver.gradient_check import REFUSED_IN_A_ROW, STRIKES_OF, bad_numbers
from paceline.core.trace import OWN, Gated
from paceline.core.vector import NOT_FINITE


@dataclass(slots=True)
class _Judged:
    """Holds what one incarnation of a worker has said. `before`: results of its earlier ones; `bad`: in a row, now.

    strikes: the number of each, and how many messages had come from all workers by then. since: those messages at the
    first of the strikes that were enough, if only proof of the others is missing; 0: there are not enough.
    """

    incarnation: int
    before: int = 0
    last: int = 0
    bad: int = 0
    since: int = 0
    strikes: deque[tuple[int, int]] = field(default_factory=deque)


class OwnResultStrikes:
    """Counts for one run, on the coordinator's thread."""

    def __init__(self, run: RunContext, elasticity: Elasticity, rule: OwnResultRule) -> None:
        self._run, self._elasticity, self._rule = run, elasticity, rule
        self._judged: dict[Party, _Judged] = {}
        self._came = 0  # messages
        self._exchanges: dict[int, int] = {}  # by rank, in the last report
        self._grew: dict[int, tuple[int, int]] = {}  # by rank: messages before its last two reports that had grown

    def progressed(self, rank: int, exchanges: int) -> None:
        """Notes the exchanges that a worker has made; nothing while no result was ever bad."""
        if self._came and exchanges != self._exchanges.get(rank):
            self._exchanges[rank] = exchanges
            self._grew[rank] = (self._grew.get(rank, (0, 0))[1], self._came)

    def told(self, src: Party, said: loop_messages.OwnResult) -> None:
        """Handles what a worker says of its own result."""
        if src not in self._run.roster.training:
            return
        self._came += 1
        judged = self._of(src)
        judged.last = judged.before + said.number
        if said.finite:
            judged.bad = 0
            return
        judged.bad += 1
        number = judged.last
        fault = Gated(at=self._run.now(), shard=OWN, rank=src.index, number=number, refused=True, reason=NOT_FINITE)
        self._run.decide.record(fault)
        if self._has_diverged():
            refused = sum(self._of(who).bad for who in self._run.roster.training)
            self._run.decide.fail(
                src,
                f"the model has diverged: the last {refused} results, of every worker, had NaN or infinity (the last: "
                f"number {number} of {src}); lower --lr or give --clip-norm",
            )
        elif why := self._strike(src, judged, mean=said.mean):
            self._elasticity.set_aside(src, why)

    def _of(self, who: Party) -> _Judged:
        """Returns what the present incarnation of a worker has said."""
        incarnation, judged = self._run.members.incarnation(who), self._judged.get(who)
        if judged is None or judged.incarnation != incarnation:
            judged = self._judged[who] = _Judged(incarnation, before=judged.last if judged else 0)
            judged.last = judged.before
        return judged

    def _has_diverged(self) -> bool:
        """Returns True if the last results of all workers that train were not finite, and enough of them."""
        bad = [self._of(who).bad for who in self._run.roster.training]
        return all(bad) and sum(bad) >= REFUSED_IN_A_ROW * len(bad)

    def _strike(self, who: Party, judged: _Judged, *, mean: bool) -> str:
        """Counts a strike. Returns why to expel the worker, or ""."""
        most, strikes = self._rule.strikes, judged.strikes
        if not most:
            return ""
        strikes.append((judged.last, self._came))
        if len(strikes) > most:
            strikes.popleft()
        number, since = strikes[0]
        of = judged.last - number + 1
        if len(strikes) < most or of > STRIKES_OF:
            judged.since = 0
            return ""
        judged.since = judged.since or since  # a fast worker has many strikes between two reports of the others
        few = len(self._run.roster.training) <= self._rule.workers_min
        if few or not self._others_are_finite(who, judged.since, mean=mean):
            return ""
        judged.since = 0
        strikes.clear()  # if the worker stays nevertheless, this is reported again after as many more
        return bad_numbers(most, of)

    def _others_are_finite(self, who: Party, since: int, *, mean: bool) -> bool:
        """Returns True if the last results of more others are finite than not. `since`: messages before, for proof."""
        found = Counter[str]()
        for other in self._run.roster.training - {who}:
            if self._of(other).bad:
                found["bad"] += 1
            elif mean or self._grew.get(other.index, (0, 0))[0] >= since:
                found["finite"] += 1
        return found["finite"] > found["bad"]
