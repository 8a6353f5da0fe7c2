"""The servers carry a `Mean`: the aggregator is itself a role, in the same vocabulary as the schemes.

Every shard collects its slice from each member and answers all of them once the last one came: the rendezvous is a set
of replies not yet given.

    state of a meeting      input                                          next
    open                    Part of a member that was absent               counted; closed if it was the last
    open                    Part of a member that was counted              unchanged: it was restarted, and waits again
    open                    a member leaves                                not expected; closed if it was the last
    open                    all wait, but not for the same meeting         the one with most members closes; see below
    closed                  Part of a member                               answered with the result, not counted
    closed by a vote        Part of one who lost it and was answered       answered; the next one closes without it
    closed                  means_at_once more of the same member          forgotten for that member
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from paceline.core.effects import Mean, Reply, Tell
from paceline.core.errors import Diverged
from paceline.core.message import INCREMENT, Nature, message
from paceline.core.role import Role, RoleContext
from paceline.core.validation import bounds
from paceline.core.vector import sum_of_two, weighted_mean


@message("mean.Part")
class Part:
    """Carries one member's contribution to a mean; answered by Averaged."""

    carries: ClassVar[Nature] = INCREMENT

    v: bounds.OfOneLength
    among: bounds.Ranks
    tag: bounds.Name
    weight: bounds.Weight
    series: bounds.Integer = 0

    @classmethod
    def of(cls, mean: Mean) -> Part:
        """Returns one member's message for a mean."""
        return cls(v=mean.v, among=mean.among, tag=str(mean.tag), weight=mean.weight, series=mean.series)


@message("mean.Averaged")
class Averaged:
    """Holds the result of a `Mean`: `v` = sum(weight_i v_i) / weight, `weight` = sum(weight_i)."""

    carries: ClassVar[Nature] = INCREMENT

    v: bounds.OfOneLength
    weight: bounds.MeanWeight
    series: bounds.Integer = 0


@dataclass(slots=True, eq=False)
class _Sum:
    """Holds the weighted sum of parts of one length, their weight, and who has sent them, in order of arrival.

    first: whose part is all of the sum so far.
    """

    v: Any
    weight: float
    ranks: list[int]
    first: int | None

    def add(self, rank: int, part: Part) -> None:
        """Adds one more part.

        The first two are added in the order of their ranks, so two workers get the same bits in any order of arrival.
        With more members the order of arrival shows in the last bits.
        """
        self.ranks += (rank,)
        if not part.weight:
            return  # zero times NaN is NaN
        weighted = part.v * part.weight
        if not self.weight:
            self.v, self.first = weighted, rank
        elif self.first is None:
            self.v = self.v + weighted
        else:
            self.v, self.first = sum_of_two(self.first, self.v, rank, weighted), None
        self.weight += part.weight

    def mean(self, series: int) -> Averaged:
        """Returns the mean of the parts."""
        return Averaged(v=weighted_mean(self.v, self.weight), weight=self.weight, series=series)


@dataclass(slots=True, eq=False)
class _Meeting:
    """A meeting is one mean that has not been answered yet, or one of the last that were.

    absent: who is still expected. counted: whose part has been taken, or who was excused. present: who waits for the
    result, in order of arrival. sums: by length, what has been taken; the parts of honest members have all one length.
    """

    among: tuple[int, ...]
    tag: Hashable
    absent: set[int]
    series: int = 0
    sums: dict[int, _Sum] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)
    refused: bool = False  # a part with a weight was rejected
    present: dict[int, None] = field(default_factory=dict)  # a dict for its order
    lost: bool = False  # a vote was against it
    result: Averaged | None = None

    def add(self, rank: int, part: Part, fault: Callable[[int, Part, Any], str | None] | None) -> None:
        """Counts the part of `rank`, unless it is a repeat or has a `fault`. None: no part is checked.

        A repeat comes from a member that was restarted or came back while the meeting was open. The member of a faulty
        part is not waited for any longer.
        """
        self.present[rank] = None
        if rank in self.counted:
            return
        self.absent.discard(rank)
        self.counted.add(rank)
        length = len(part.v)
        alike = self.sums[length] if length in self.sums else None  # noqa: SIM401  a call costs more
        if fault is not None and fault(rank, part, None if alike is None else alike.v) is not None:
            self.refused = True
            return
        if alike is None:
            self.sums[length] = _Sum(part.v * part.weight, part.weight, [rank], rank)
        else:
            alike.add(rank, part)

    def agree(self) -> dict[int, int]:
        """Keeps the parts of the length that most members have sent, of as many the longest.

        Returns, by rank, the wrong lengths; of nobody where there is no majority: then it is not known who lies.
        """
        if len(self.sums) < 2:
            return {}
        right = max(self.sums, key=lambda length: (len(self.sums[length].ranks), length))
        lengths = {rank: length for length, alike in self.sums.items() for rank in alike.ranks}
        self.sums = {right: self.sums[right]}
        wrong = {rank: length for rank, length in lengths.items() if length != right}
        return wrong if 2 * len(wrong) < len(lengths) else {}

    @property
    def sum(self) -> _Sum | None:
        """Returns what has been taken of the first length; of the only one, once the members agree."""
        return next(iter(self.sums.values()), None)

    def is_of(self, part: Part) -> bool:
        """Returns True if `part` belongs to this meeting."""
        # The identity test spares a comparison of all ranks wherever the members share one tuple.
        if self.tag != part.tag or self.series != part.series:
            return False
        return self.among is part.among or self.among == part.among

    def can_end_with(self, result: Averaged) -> bool:
        """Returns True if `result`, of another meeting, can stand for this one's: it is of the same quantity.

        Otherwise a member would get another fragment of the model than it asked for. A meeting without a part has
        nothing of its own to end with.
        """
        return not self.sums or (self.series == result.series and len(result.v) in self.sums)


def nobody_counts(tag: Hashable) -> Diverged:
    """Returns the error of a mean of which every part was rejected."""
    return Diverged(f"the model has diverged: nobody's part of the mean {tag} is finite; lower --lr")


def mean_model(models: Iterable[tuple[Any, float]]) -> Any:
    """Returns the mean of (w, weight)s: the model of workers that each have their own. Without any weight it is the
    first w.
    """
    first, total, weight = None, None, 0.0
    for w, more in models:
        first = w if first is None else first
        if more:
            total = w * more if total is None else total + w * more
            weight += more
    return first if total is None else weighted_mean(total, weight)


class MeanServer(Role):
    """Closes a meeting when every member that still takes part has come.

    For each member it keeps as many results as the member may have Means under way (`Scheme.means_at_once`). A member
    that was restarted before the answers reached it asks for them again. A late joiner may still ask for a meeting that
    closed without it: it gets the result and is not counted. Meetings that begin after it joined expect it.

    All members go to the same meetings, and have no more of them open than `means_at_once`. So there is always a member
    that may still ask for a meeting: the one that the others wait for. If there is none, some member has asked for a
    meeting that the others never will, and everybody would wait for ever. Then the meeting to which most members came
    closes, those counted that have left since. Members that are not in it get its result instead of what they asked
    for, and are not counted. Where as many came to two meetings, the one wins whose members have been outvoted less
    often before.

    What they asked for is closed with that result, too: whoever asks for it later gets the same. If the result is of
    another fragment of the model, their meeting ends with the mean of those who came to it.

    A member that asks for it once more, though it was answered, or that is a newcomer and asks for what only an earlier
    incarnation of its own had asked for, gets the same and counts as one that waits: it might ask for it for ever at
    this server and for others elsewhere, and the others would wait here for its part.
    """

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.meetings: dict[Hashable, list[_Meeting]] = {}  # those still open, by tag
        self.open_count = 0  # of `meetings`
        self.kept_at_most: int = getattr(scheme, "means_at_once", 1)
        self.closed: dict[int, list[_Meeting]] = {}  # the last ones of each rank, oldest first
        self.left: set[int] = set()
        self.asked: dict[int, list[_Meeting]] = {}  # by rank: not answered yet, in the order of the questions
        self.missed: dict[int, list[_Meeting]] = {}  # by newcomer: closed without it, oldest first
        self.outvoted: Counter[int] = Counter()  # by rank: how often it asked for another meeting than most
        self.passed: dict[int, list[_Meeting]] = {}  # by newcomer: what it had missed, until it met the others
        self.settled: dict[int, list[_Meeting]] = {}  # by rank: closed without it, until it goes on
        self.insists: set[int] = set()  # who asked last for a meeting that lost, as nobody honest would

    def on(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        """Takes a member's part: answers at once if the meeting is closed, otherwise when it closes."""
        if not isinstance(message, Part):
            return super().on(now, src, message)
        last = self._closed_before(src, message)
        if last is not None:
            self.asked.pop(src, None)  # what an earlier incarnation asked for
            if not self._insists(src, last):
                return (Reply(src, last.result),)
            self.insists.add(src)
            return (Reply(src, last.result), *self._go_on_together())
        self.insists.discard(src)
        # From here on the meeting is open. A member asks for its meetings in one order, and is answered in that order.
        meeting = self._meeting(message)
        asked = self.asked.get(src)
        if not asked or meeting in asked:  # a repeat: all other questions are of an earlier incarnation, too
            self.asked[src] = [meeting]
        else:
            if (
                len(asked) == self.kept_at_most
            ):  # a worker never has more under way: the oldest question is of an earlier incarnation
                self._gives_up(src, asked.pop(0))
            asked.append(meeting)
        checked = self.gate is not None and message.weight  # a part without a weight counts nothing
        meeting.add(src, message, functools.partial(self._fault, now) if checked else None)
        return self._go_on_together() if meeting.absent else self._close(meeting)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Expects nothing of `rank` any more, which may close meetings; the last results kept for it are dropped."""
        self.left.add(rank)
        if self.gate is not None:
            self.gate.gone(rank)
        self.closed.pop(rank, None)
        for known in (self.missed, self.passed, self.settled):
            known.pop(rank, None)
        self.asked.pop(rank, None)
        self.insists.discard(rank)
        for meeting in self._open():
            meeting.absent.discard(rank)
            meeting.present.pop(rank, None)
            yield from self._close(meeting)
        self._forget_the_abandoned()
        yield from self._go_on_together()

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Lets a newcomer ask for any result that somebody may still ask for; it is expected from
        the next meeting on.
        """
        self.left.discard(rank)
        if self.gate is not None:
            self.gate.came(rank)
        # The newcomer may ask for any meeting that some worker can still ask for: the one whose round it takes over
        # may itself be a newcomer that lags behind.
        remembered = (self.missed, self.passed, self.closed, self.settled)
        known = itertools.chain(*(meetings for of in remembered for meetings in of.values()))
        self.missed[rank] = list({id(meeting): meeting for meeting in known}.values())
        self._forget_the_abandoned()
        yield from ()

    def passes(self, rank: int) -> Iterator[Reply]:
        """Expects `rank` in no meeting that is open now: it has what it wanted of them, and asks for none again.

        Where all are honest it is expected in none. A liar may have named a closed meeting instead of its last one.
        """
        for meeting in self._open():
            if rank in meeting.absent:
                meeting.absent.discard(rank)
                yield from self._close(meeting)

    def _open(self) -> list[_Meeting]:
        """Returns all meetings that are open or remembered."""
        return [meeting for same_tag in self.meetings.values() for meeting in same_tag]

    def _forget_the_abandoned(self) -> None:
        """Removes open meetings that nobody waits for, when all present workers are newcomers.

        Newcomers that found nobody to follow begin anew, with the tags of the beginning.
        """
        if all(rank in self.left or rank in self.missed for rank in self.workers):
            for meeting in self._open():
                if not meeting.present:
                    self._remove(meeting)

    def _fault(self, now: float, rank: int, part: Part, onto: Any) -> str | None:
        """Returns why the gradient check rejects the part, or None."""
        assert self.gate is not None
        return self.gate.part(now, rank, part.v, onto)

    def _insists(self, src: int, meeting: _Meeting) -> bool:
        """Returns True if a member asks for a meeting that lost a vote, and it alone, or that it was answered with."""
        given = self.closed.setdefault(src, [])
        again = meeting in given
        if not again:
            self._note_given(given, meeting)
        return meeting.lost and (again or meeting.counted <= {src})

    def _note_given(self, given: list[_Meeting], meeting: _Meeting) -> None:
        """Notes that the rank of `given` has the result of that meeting, and forgets its oldest one."""
        if len(given) == self.kept_at_most:
            del given[0]
        given.append(meeting)

    def _closed_before(self, src: int, part: Part) -> _Meeting | None:
        """Returns the meeting that `part` belongs to, if it is closed."""
        for meeting in self.closed.get(src, ()):
            if meeting.is_of(part):
                return meeting
        for known in (self.missed, self.settled):
            for meeting in known.get(src, ()) if known else ():
                if meeting.is_of(part):
                    return meeting
        self.settled.pop(src, None)
        # It has caught up, or it lies: the next newcomer may take over where it is.
        if src in self.missed:
            self.passed[src] = self.missed.pop(src)
        return None

    def _meeting(self, part: Part) -> _Meeting:
        """Returns the open meeting that `part` belongs to; opens it if this is its first part."""
        same_tag = self.meetings.setdefault(part.tag, [])
        for meeting in same_tag:
            if meeting.is_of(part):
                return meeting
        meeting = _Meeting(part.among, part.tag, set(part.among) - self.left, part.series)
        same_tag.append(meeting)
        self.open_count += 1
        return meeting

    def _close(self, meeting: _Meeting) -> Iterator[Reply]:
        """Computes the mean if nobody is absent any more, and yields the replies to all that wait for it.

        Raises Diverged if every part was rejected and somebody waits.
        """
        if meeting.absent:
            return
        if len(meeting.sums) > 1:
            self._agree(meeting)
        total = meeting.sum
        if total is None or (meeting.refused and not total.weight):
            if meeting.present:
                raise nobody_counts(meeting.tag)
            self._remove(meeting)  # its members have left, and a newcomer is not to be given what has no vector
            return
        result = total.mean(meeting.series)
        self.on_mean(meeting.tag, result)
        yield from self._end(meeting, result)

    def _agree(self, meeting: _Meeting) -> None:
        """Leaves the parts of a wrong length out of the mean, and reports who has sent them."""
        for rank, length in meeting.agree().items():
            if self.place.refuses is not None:
                most = next(iter(meeting.sums))
                self.place.refuses(rank, f"Part: the length of v is {length}, which is {most} in most others")

    def _end(self, meeting: _Meeting, result: Averaged) -> Iterator[Reply]:
        """Closes the meeting with that result, and yields the replies to all that wait for it."""
        self._remove(meeting)
        meeting.result, meeting.sums = result, {}
        # A newcomer that was not in this meeting may still have to pass through it.
        for rank, missed in self.missed.items():
            if rank not in meeting.present:
                missed.append(meeting)
        if len(meeting.present) < len(meeting.among):
            self._settle(meeting)
        for rank in meeting.present:
            if not meeting.lost:
                self.passed.pop(rank, None)
            self._note_given(self.closed.setdefault(rank, []), meeting)
            # A reply belongs to the oldest question, so an early result waits its turn.
            # A member that asks for an earlier mean again, since it was restarted, has no question here until it
            # comes to this one.
            asked = self.asked.get(rank, [])
            while asked and asked[0].result is not None:
                yield Reply(rank, asked.pop(0).result)

    def _go_on_together(self) -> Iterable[Reply]:
        """Closes a meeting when all members wait and none can be the one they wait for; the class says why."""
        if self.open_count < (1 if self.insists else 2):
            return ()
        here = [rank for rank in self.workers if rank not in self.left]
        if any(len(self.asked.get(rank, ())) < self.kept_at_most for rank in here if rank not in self.insists):
            return ()
        return self._vote() if any(self.asked.get(rank) for rank in here) else ()

    def _vote(self) -> Iterator[Reply]:
        """Closes the meeting with the most votes, and what the others wait for."""
        agreed = max(self._open(), key=self._votes)
        outvoted = {rank: self.asked[rank][0] for rank in agreed.absent if self.asked.get(rank)}
        self.insists.difference_update(agreed.absent)
        agreed.absent.clear()
        yield from self._close(agreed)
        assert agreed.result is not None
        for rank, meeting in outvoted.items():
            self.outvoted[rank] += 1
            if meeting.result is None:
                waits_on = any(outvoted.get(other) is not meeting for other in meeting.present)
                yield from self._outvote(rank, meeting, agreed.result, waits_on=waits_on)

    def _outvote(self, rank: int, meeting: _Meeting, result: Averaged, *, waits_on: bool) -> Iterator[Reply]:
        """Closes the meeting that `rank` waits for: with `result`, that of another one, or else with its own.

        waits_on: others have it as a later question, and wait on; `rank` alone is given `result`.
        """
        if not meeting.can_end_with(result):
            self._agree(meeting)
            assert meeting.sum is not None
            result = meeting.sum.mean(meeting.series)
        elif waits_on:
            del meeting.present[rank], self.asked[rank][0]
            yield Reply(rank, result)
            return
        meeting.lost = True
        yield from self._end(meeting, result)

    def _settle(self, meeting: _Meeting) -> None:
        """Keeps a closed meeting for those of its members who take part and have not asked for it yet.

        They were outvoted, or came when it had begun and have asked for another one first, as a liar does.
        """
        for rank in meeting.among:
            if rank not in meeting.present and rank not in self.left and rank not in self.missed:
                self.settled.setdefault(rank, []).append(meeting)

    def _votes(self, meeting: _Meeting) -> tuple[int, int]:
        """Returns by what meetings are compared where members wait for different ones: the largest wins.

        Who has left since speaks for it, too: a liar may be one of two who are still there. Among equals that one wins
        whose members have been outvoted less often.
        """
        return len(meeting.counted), -sum(self.outvoted[rank] for rank in meeting.present)

    def _gives_up(self, rank: int, meeting: _Meeting) -> None:
        """`rank` does not wait for `meeting` any longer; a meeting for which nobody waits is removed."""
        meeting.present.pop(rank, None)
        if not meeting.present and meeting.result is None:
            self._remove(meeting)

    def _remove(self, meeting: _Meeting) -> None:
        """Forgets a meeting."""
        same_tag = self.meetings[meeting.tag]
        same_tag.remove(meeting)
        self.open_count -= 1
        if not same_tag:
            del self.meetings[meeting.tag]

    def forget(self, tag: Hashable) -> None:
        """Drops the results of `tag`, for which nobody will ask again: an initial mean is as large as the model."""
        for known in (self.closed, self.missed, self.passed, self.settled):
            for meetings in known.values():
                meetings[:] = [meeting for meeting in meetings if meeting.tag != tag]

    def forget_former(self) -> None:
        """Drops all results: nobody is left of those who know them, and the next worker begins with the first tags.

        Newcomers that came before the last worker was lost could otherwise get a mean of its time under a tag of
        theirs. No live run goes on without a worker.
        """
        for known in (self.closed, self.missed, self.passed, self.settled):
            for meetings in known.values():
                meetings.clear()

    def on_mean(self, tag: Hashable, result: Averaged) -> None:
        """Is called with every result; drivers override it to learn of one, such as the initial weights."""
