"""Recounts what each shard heard, answered and applied, from the messages alone, and compares it with the scheme.

The oracle is an independent second count: it reads messages and trace records, never the role under test. It is
saved and restored with the shard's snapshots and copies, so that it knows which updates were undone.

Example (SSP, staleness 1, workers 0 and 1). Worker 0 pushes clock 1 and 2, worker 1 nothing: its clock is 0.

    hear(0, Push(clock=1))      clocks 1, 0; `open` has one contribution of worker 0
    applied(ranks=[0])          it leaves `open`; updates = 1
    reply(0, Weights(version=1))  worker 0 is 1 ahead, bound 1: allowed
    hear(0, Push(clock=2)), applied(ranks=[0]); updates = 2
    reply(0, Weights(version=2))  worker 0 is 2 ahead: InvariantBroken

Two counts of clocks exist. `_clocks` counts contributions since the shard began; `_told` follows the numbers in the
messages, in which contributions that a rollback undid count too. A worker is too far ahead only if both say so.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from paceline.core.effects import Data, Piece
from paceline.core.paramserver.clocks import Clocks
from paceline.core.paramserver.gated_server import Pull
from paceline.core.trace import Applied
from paceline.sim.checking.oracles.promises import EVERYBODY, Promised

Place = tuple[int, int]
"""Of a leased sample: epoch, and where in its order."""


@dataclass(slots=True, eq=False)
class Contribution:
    """Records a contribution that a shard heard.

    data    its leased samples
    group   the group that its worker had moved to, with the number of the move; None before the first move
    former  its worker was restarted
    """

    samples: int
    data: Data
    group: tuple[Any, Any] | None = None
    former: bool = False


class ShardRecount:
    """Counts what one incarnation of a shard heard, answered and applied. `broken` makes the error of a violation.

    promises   one for each phase of the scheme
    number     of the shard
    liars      Byzantine workers, to which nothing is promised
    robust     an update counts as many samples as its contributions claim, after the largest and the smallest claims
               were clipped to the next ones
    """

    def __init__(
        self,
        broken: Callable[[str], AssertionError],
        promises: Sequence[Promised],
        workers: int,
        number: int,
        liars: Set[int] = frozenset(),
        *,
        robust: bool = False,
    ) -> None:
        self.liars, self._robust = liars, robust
        self._broken, self._promises, self._workers, self._number = broken, promises, workers, number
        self.phase = 0
        self._here = set(range(workers))
        self._begin()
        self._untold: set[int] = set()  # whose own clock is not known since all servers went back
        self._new: set[int] = set()  # who counts from whatever it was given
        self._constant = True  # nobody has come or gone
        self._heard: Counter[int] = Counter()  # contributions of each worker
        self._applied: Counter[int] = Counter()
        self._samples = self._samples_applied = 0
        self.done: list[Data] = []  # leased samples that are in the model, in the order of the updates
        self.comings: Counter[int] = Counter()  # how often each worker came that it knows of
        self.order = self.view = 0  # the last order to restore that it obeyed, and the last by which all went back
        self.dropped: Counter[int] = Counter()

    def _begin(self) -> None:
        """A phase begins, with clocks and versions of its own."""
        self._clocks = Clocks(sorted(self._here))
        self._told = dict(self._clocks)  # by the workers' own count, in which what was undone counts, too
        self._told_last = 0  # of the last worker, when all have gone
        self._at: dict[int, tuple[int, int]] = {}
        self._last: dict[int, int] = {}  # clock of each worker's last contribution
        self._used: dict[int, int] = {}  # clock of each worker's last contribution that is in an update, or was dropped
        self._in_model: dict[int, int] = {}  # and of the last that was not dropped
        self._acknowledged: dict[int, int] = {}  # the last of these that was answered
        self._ended: dict[int, int] = {}  # by rank: the phase that it says is over
        self._seen: dict[int, int] = dict.fromkeys(range(self._workers), 0)  # updates in each one's weights
        self._group: dict[int, tuple[Any, Any]] = {}  # by rank: what its last move names
        self._shift: dict[int, int] = {}  # of a newcomer that has pushed: its clock here, less what it calls its clock
        self.open: dict[int, list[Contribution]] = {}  # by rank: heard, and neither applied nor dropped yet
        self._passed_over: set[int] = set()  # who had one dropped since the last update
        self.updates = 0

    @property
    def _promise(self) -> Promised:
        return self._promises[self.phase]

    # ---- of a server that is replaced ----------------------------------------------------------------------
    def as_kept(self) -> ShardRecount:
        """Returns the recount that belongs to a state kept now, in which contributions that wait for their round do not
        exist."""
        kept = ShardRecount(self._broken, self._promises, self._workers, self._number, self.liars, robust=self._robust)
        kept._clocks, kept._here, kept._constant = Clocks(()), self._here.copy(), self._constant
        kept._applied, kept._samples_applied, kept.updates = self._applied.copy(), self._samples_applied, self.updates
        kept._used, kept._in_model, kept._seen = self._used.copy(), self._in_model.copy(), self._seen.copy()
        kept.dropped, kept._new, kept.comings = self.dropped.copy(), self._new.copy(), self.comings.copy()
        kept.done, kept._untold, kept.view = self.done.copy(), self._untold.copy(), self.view
        kept._shift = self._shift.copy()
        for rank, clock in self._clocks.items():
            waits = rank in self.open
            kept._at[rank] = max(0, clock - waits), max(0, self._told[rank] - waits)
        return kept

    def again(self, order: int, *, copied: bool) -> ShardRecount:
        """Returns the recount of a server that goes on from this kept state.

        `order`: the number of the order it obeyed. `copied`: the other servers go on. Otherwise all have gone back, and
        it counts by the workers' own clocks, and hears from every worker how far that one is.
        """
        made = self.as_kept()
        made._clocks, made.order = Clocks(range(self._workers)), order
        made._told = dict(made._clocks)
        if not copied:
            made._untold, made.view, made._shift = self._at.keys() - self._new, order, {}
        for rank, (clock, told) in self._at.items():
            made._clocks.tick(rank, clock)
            made._told[rank] = told - (0 if copied else self._shift.get(rank, 0))
        made._heard, made._samples, made._last = made._applied.copy(), made._samples_applied, made._used.copy()
        return made

    def keeps(self, tables: Mapping[str, Any]) -> None:
        """Checks the clocks in the tables that a server would keep now, in which nothing waits for its round.

        Where groups change, which no scheme with a bound on clocks has, a newcomer may wait for no round of its own.
        """
        for rank, clock in tables["clocks"] if self._promise.ahead is not None else ():
            counted = self._told[rank] - (rank in self.open)
            if clock != counted:
                raise self._broken(f"shard {self._number} keeps clock {clock} of worker {rank}; it is {counted}")

    def resumes_as(self, tables: Mapping[str, Any], *, by_clocks: bool) -> str:
        """Returns what is wrong with the tables that a run is resumed with from this kept state; "" if nothing is.

        by_clocks: workers go on with the clocks in them.
        """
        if tables["version"] != self.updates:
            return f"version {tables['version']} after {self.updates} updates"
        in_model = Counter(place for data in self.done for place in places(data))
        if wrong := set(places(tables["done"])).symmetric_difference(in_model):
            return f"sample {min(wrong)}: in the model or not"
        clocks, seen = dict(tables["clocks"]), dict(tables["seen"])
        if missing := [rank for rank in range(self._workers) if rank not in clocks or rank not in seen]:
            return f"nothing is known of worker {missing[0]}"
        for rank in sorted(self._here):
            if by_clocks and clocks[rank] < self._in_model.get(rank, 0):
                return (
                    f"worker {rank} has clock {clocks[rank]}, and contribution {self._in_model[rank]} is in the model"
                )
            if seen[rank] != self._seen[rank]:
                return f"worker {rank} has weights of version {seen[rank]}, and was given {self._seen[rank]}"
        return ""

    def resumed(self, tables: Mapping[str, Any], clocks: Sequence[int]) -> None:
        """Begins where a checkpoint was taken, of which every server has these tables: nothing has been heard since.

        clocks: with which the workers begin, by rank. A worker's own count may be ahead by what rollbacks have undone,
        so contributions are counted from here on.
        """
        self._told = dict(enumerate(clocks))
        self._last, self._used, self._in_model = dict(self._told), dict(self._told), dict(self._told)
        self._seen.update(dict(tables["seen"]))
        self.updates = tables["version"]
        self.done = [tuple(tables["done"])] if tables["done"] else []
        self._constant = False

    def goes_on_as(self, other: ShardRecount) -> None:
        """Checks that the copy a lost server is replaced from, `other`, has every contribution the server had answered,
        and nothing that was undone when all went back."""
        if other.view != self.view:
            raise self._broken(f"a copy of view {other.view} is used for a lost server that had gone back since")
        for rank, clock in self._acknowledged.items():
            if other._in_model.get(rank, 0) < clock:
                raise self._broken(
                    f"a lost server had answered contribution {clock} of worker {rank}, and its copy does not have it"
                )

    def acknowledges(self, rank: int) -> None:
        """Notes that the last contribution of `rank` in the model was answered: from now on it must not get lost."""
        if rank in self._in_model:
            self._acknowledged[rank] = self._in_model[rank]

    # ---- while it lasts ------------------------------------------------------------------------------------
    def hear(self, src: int, message: Any) -> None:
        """Counts a message of worker `src`, if it is a contribution that was not heard before.

        A message with a `phase` begins the clocks of its worker anew; one with weights, too, ends its part in the
        phase.
        """
        if hasattr(message, "phase"):  # where clocks begin anew
            self._last.pop(src, None)
            if hasattr(message, "w"):
                self._ends(src, message.phase)
        if isinstance(message, Pull):
            self._hears_how_far(src, message.last)
        clock = getattr(message, "clock", None)
        if clock is None or src not in self._clocks or clock <= self._last.get(src, 0):
            return
        # A newcomer counts from whatever clock its peers handed it, so its first number may jump; later ones may not.
        jump = max(1, clock - self._told[src]) if src in self._new else clock - self._last.get(src, 0)
        self._untold.discard(src)
        self._last[src] = clock
        self._heard[src] += 1
        self._samples += message.samples
        if hasattr(message, "group") and hasattr(message, "number"):
            self._group[src] = message.number, message.group
        if hasattr(message, "series"):  # an update is made of one fragment
            self._group[src] = message.series, ()
        contribution = Contribution(message.samples, getattr(message, "data", ()), self._group.get(src))
        self.open.setdefault(src, []).append(contribution)
        self._clocks.tick(src, self._clocks[src] + 1)
        self._told[src] += jump
        if src in self._new:
            self._new.discard(src)
            self._shift[src] = self._told[src] - clock

    def _hears_how_far(self, src: int, clock: int) -> None:
        """Notes the own clock of worker `src`, which a server that has gone back may not know."""
        if src in self._untold:
            self._untold.discard(src)
            self._told[src] = self._last[src] = self._used[src] = max(clock, self._last.get(src, 0))

    def _ends(self, src: int, phase: int) -> None:
        """Notes that worker `src` takes no further part in `phase`, so nobody waits for it there."""
        self._ended[src] = phase
        if phase == self.phase and src in self._clocks:
            self._clocks.drop(src)

    def heard_of(self, rank: int) -> int:
        """Returns how many contributions of worker `rank` this shard has heard, those of lost incarnations included."""
        return self._heard[rank]

    def last_of(self, rank: int) -> int:
        """Returns the clock of its last contribution."""
        return self._last.get(rank, 0)

    def reply(self, to: int, message: Any) -> None:
        """Checks an answer with weights: its version is right, nobody gets too far ahead, and no round is left too
        early.

        An answer without a version hands out no weights to compute on. It may end a phase: the first worker that
        ended it and gets weights begins the next one.
        """
        version = getattr(message, "version", None)
        if version is None:  # it gives nobody weights to work at
            if hasattr(message, "w") and self._ended.get(to, -1) == self.phase < len(self._promises) - 1:
                self.phase += 1
                self._begin()
            return
        if version != self.updates:
            raise self._broken(f"shard {self._number} says it is at version {version} after {self.updates} updates")
        self._seen[to] = version
        promise = self._promise
        if to in self.liars:
            return
        if promise.ahead is not None and to in self._clocks:
            self._look_how_far_ahead(to, promise.ahead)
        waits = promise.waits and not (promise.one_gate and self._number)
        if waits and not all(contribution.former for contribution in self.open.get(to, ())):
            raise self._broken(f"worker {to} may go on; its contribution is in no update of shard {self._number}")

    def _look_how_far_ahead(self, to: int, bound: int) -> None:
        """Raises if worker `to` is more than `bound` clocks ahead of the slowest, by both counts."""
        ahead = self._clocks[to] - self._clocks.low
        if ahead > bound and self._told[to] - min(self._told[rank] for rank in self._clocks) > bound:
            raise self._broken(f"worker {to} may go {ahead} clocks ahead of the slowest, bound {bound}")

    def applied(self, record: Applied) -> None:
        """Checks a record of an update (weight > 0) or of a dropped contribution (weight 0), and counts it."""
        if self._promise.in_groups:
            brought = tuple(rank for rank in record.ranks if self.open.get(rank))
            if not brought:
                raise self._broken(f"shard {record.shard} makes an update of {record.ranks}, of whom nothing has come")
            record = replace(record, ranks=brought)
        made_of = self._taken(record)
        self._look_at_staleness(record)
        if record.weight > 0:
            self._look_at_update(record, made_of)
            self.updates += 1
            self.done += [contribution.data for contribution in made_of if contribution.data]
            self._passed_over.clear()
        for rank in record.ranks:
            self._used[rank] = self._last.get(rank, 0)
            if record.weight > 0:
                self._in_model[rank] = self._used[rank]
            else:
                self.dropped[rank] += 1
                self._passed_over.add(rank)
        if record.version != self.updates:
            raise self._broken(
                f"shard {self._number} calls its update version {record.version}; it has made {self.updates}"
            )

    def _taken(self, record: Applied) -> list[Contribution]:
        """Returns the contributions a record is about: all that wait, or the last one of each rank where they were
        dropped.

        Raises if there are more than were heard, or if the samples of the record are not those of the contributions.
        """
        taken: list[Contribution] = []
        for rank, new in zip(record.ranks, self._made_of(record), strict=True):
            own = self.open.get(rank, [])
            self._applied[rank] += max(1, len(new))
            if self._applied[rank] > self._heard[rank]:
                raise self._broken(
                    f"shard {record.shard} applied {self._applied[rank]} contributions of worker {rank}, "
                    f"which has made {self._heard[rank]}"
                )
            taken += new
            if left := [contribution for contribution in own if contribution not in new]:
                self.open[rank] = left
            else:
                self.open.pop(rank, None)
        claims = [contribution.samples for contribution in taken]
        self._samples_applied += sum(claims) if self._robust else record.samples
        if self._samples_applied > self._samples:
            raise self._broken(
                f"shard {record.shard} applied {self._samples_applied} samples; {self._samples} have arrived"
            )
        if not self._counts_as(record, claims):
            raise self._broken(
                f"shard {record.shard} counts {record.samples} samples; its contributions have {sum(claims)}"
            )
        return taken

    def _made_of(self, record: Applied) -> Sequence[list[Contribution]]:
        """Returns the contributions of each rank that the record is about: those whose samples it has.

        A worker that was lost and has joined another group since has one in the open round of each group. An update is
        made of one round. So there is a choice, and what is not taken must be in an update of its own.
        """
        choices = [self._of_one_round(self.open.get(rank, []), record.weight) for rank in record.ranks]
        for taken in itertools.product(*choices):
            if self._counts_as(record, [contribution.samples for own in taken for contribution in own]):
                return taken
        return [choice[0] for choice in choices]

    @staticmethod
    def _of_one_round(own: Sequence[Contribution], weight: float) -> list[list[Contribution]]:
        """Returns the contributions of one rank by the groups that it made them for, the last group first."""
        groups = list(dict.fromkeys(contribution.group for contribution in reversed(own)))
        by_group = [[one for one in own if one.group == group] for group in groups or [None]]
        return [found if weight > 0 else found[-1:] for found in by_group]

    def _counts_as(self, record: Applied, claims: Sequence[int]) -> bool:
        """Returns True if the samples of the record fit what its contributions claim.

        Robust means clip claims, so only bounds are known: at least and at most so many times the smallest and
        largest claim.
        """
        if not self._robust or not claims:
            return record.samples == sum(claims)
        least = len(claims) * min(claims) if record.weight > 0 else 0
        return least <= record.samples <= len(claims) * max(claims)

    def _look_at_staleness(self, record: Applied) -> None:
        """Raises unless the recorded staleness is the number of updates since its oldest worker got its weights."""
        staleness = self.updates - min(self._seen.get(rank, 0) for rank in record.ranks)
        if record.staleness != staleness:
            raise self._broken(
                f"shard {record.shard} calls a contribution of worker {record.ranks[0]} {record.staleness} versions "
                f"late; it is {staleness}"
            )

    def _look_at_update(self, record: Applied, made_of: list[Contribution]) -> None:
        """Raises unless the update is made of as many contributions and samples as the scheme's parameters say."""
        promise = self._promise
        if self._ended:  # what waits when a phase ends becomes an update as it is
            return
        wanted = promise.contributions(len(self._clocks))
        if wanted is not None and len(made_of) != wanted:
            raise self._broken(
                f"shard {record.shard} makes an update of {len(made_of)} contributions; {wanted} were to make one"
            )
        if promise.together == EVERYBODY:
            missing = sorted(set(self._clocks).difference(record.ranks, self._passed_over))
            if missing:
                raise self._broken(f"shard {record.shard} makes an update without worker {missing[0]}, which is here")
        # Batch sizes are dealt out so that they add up to the promise. That holds only while the workers are the same
        # and every one contributes.
        if (
            promise.samples
            and self._constant
            and not self.liars
            and not self._passed_over
            and record.samples != promise.samples
        ):
            raise self._broken(f"an update is made of {record.samples} samples; it was to be {promise.samples}")

    def all_is_accounted_for(self, number: int, waiting: int) -> None:
        """Raises unless every sample that was heard was applied or dropped, or is among the `waiting` ones of open
        rounds."""
        if not self._samples_applied:  # a scheme whose server does not tell
            return
        if self._samples != self._samples_applied + waiting:
            raise self._broken(
                f"at the end shard {number} has heard {self._samples} samples; applied or dropped were "
                f"{self._samples_applied}, and {waiting} wait in open rounds"
            )

    def gone(self, rank: int) -> None:
        """Notes that the shard has heard that worker `rank` is gone: no clock and no round waits for it."""
        self._constant = False
        self._here.discard(rank)
        self._ended.pop(rank, None)
        if rank in self._clocks:
            self._clocks.drop(rank)
            self._told_last = self._told[rank]

    def came(self, rank: int) -> None:
        """Notes that the shard has heard that worker `rank` joins, at the clock of the slowest.

        What its former incarnation left in the open round is still applied, but the newcomer need not wait for it.
        """
        self._constant = False
        self._untold.discard(rank)
        for known in (self._last, self._used, self._in_model, self._acknowledged):
            known.pop(rank, None)
        self.comings[rank] += rank not in self._here  # told twice it is no news
        self._here.add(rank)
        self._new.add(rank)
        self._shift.pop(rank, None)
        self._seen[rank] = self.updates
        for contribution in self.open.get(rank, ()):
            contribution.former = True
        if rank not in self._clocks:
            self._told[rank] = min((self._told[other] for other in self._clocks), default=self._told_last)
            self._clocks.add(rank)
            if rank in self.open:  # its former incarnation is in the open round
                self._clocks.tick(rank, self._clocks[rank] + 1)
                self._told[rank] += 1


def places(pieces: Iterable[Piece]) -> Iterator[Place]:
    """Yields every place within `pieces`, which are (epoch, start, stop) with `stop` excluded."""
    return ((epoch, at) for epoch, start, stop in pieces for at in range(start, stop))
