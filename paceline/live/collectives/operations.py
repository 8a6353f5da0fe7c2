"""Holds the means that a worker takes part in: for each, what has begun, what has arrived, what is missing.

A `Meeting` adds up on the way, strip by strip. Where a codec is asked for, `RoundedMeeting` does the same with half as
many bytes, and `Gathering` passes everybody's encoded vector on to all and adds here
(`paceline.codec.pipeline.collective`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from paceline.codec.encoded import Encoded
from paceline.codec.pipeline.collective import SHARES, SUMS, MeanCoder
from paceline.core.collective import (
    Arithmetic,
    GatheredShare,
    OutgoingPiece,
    ScheduleExecution,
    gathering_for,
    schedule_for,
)
from paceline.core.collective.mean_server import Averaged, nobody_counts
from paceline.core.effects import Mean
from paceline.core.errors import ProtocolError
from paceline.core.message import message
from paceline.core.paramserver.peer_check import OwnResults
from paceline.core.validation import bounds
from paceline.core.vector import Memory
from paceline.live.protocol.pending_reply import PendingReply

STRIPS_UNDER_WAY = 4
"""Strips of a mean that are under way at a time: one is added up while others travel."""


class VectorAdder(Arithmetic, Protocol):
    """Arithmetic on the vectors of this worker, and where they may be read."""

    def dense(self, v: Any) -> Any:
        """Returns `v` as a vector of all its elements."""

    def readable(self, v: Any) -> Any:
        """Returns `v` where all members can read it: in host memory, dense."""

    def when(self, v: Any, action: Callable[[], None]) -> None:
        """Calls `action` once the numbers of `v` are there: now, or later on any thread."""


@message("meetings.Take", plane="collective")
class Take:
    """Describes a mean, and asks a worker that has left to take part in it with weight zero.

    among: ranks of the members. hosts: members by host, as positions in `among`. coding: of `codec/pipeline/`.
    """

    name: bounds.Name
    among: bounds.Ranks
    length: bounds.Elements
    schedule: bounds.Name
    hosts: bounds.HostGroups
    coding: bounds.Name = "exact"


class FalsePieceError(ValueError):
    """A member's numbers cannot be what an honest one sends. member: its position, if it is not the sender."""

    def __init__(self, why: str, member: int | None = None) -> None:
        super().__init__(why)
        self.member = member


class Strip(Protocol):
    """Does one member's part in the mean of one strip of the vector."""

    @property
    def done(self) -> bool:
        """Returns True once nothing more has to come."""

    @property
    def weight(self) -> float:
        """Returns the weight of what was added so far."""

    def begin(self) -> Iterator[OutgoingPiece]:
        """Yields what leaves at once."""

    def take(self, step: int, src: int, v: Any, weight: float) -> Iterator[OutgoingPiece]:
        """Takes a piece of member `src`; yields what leaves after it."""

    def room(self, step: int, src: int) -> Any | None:
        """Returns where the piece may be received, if nothing has to be added to it; else None."""


class Tools(NamedTuple):
    """Bundles what a worker needs for its means. `coder`: of the run's codec, or None; `strip_bytes`: at most.

    check: judges this worker's vectors; None: all count.
    """

    memory: Memory
    adder: VectorAdder
    coder: MeanCoder | None
    strip_bytes: int
    check: OwnResults | None = None


class Meeting:
    """Executes one mean that worker `me` takes part in. The vector of `effect` is where all members can read it.

    a strip    input                              then                                          next
    WAITING    its numbers are there              it may begin                                  READY
    READY      fewer than `at_once` under way,    its first pieces are sent                     UNDER WAY
               or a piece of it arrives
    UNDER WAY  a piece of another member          added, and passed on as the schedule says     UNDER WAY
    UNDER WAY  the schedule's last step           the strip of `out` is the mean                DONE

    Strips bound memory, and let one be added up while the next is on its way. One in which this worker's own numbers
    are not fit for the mean counts with weight zero; the weight of the mean is the smallest of those of its strips.
    """

    at_once = STRIPS_UNDER_WAY

    def __init__(self, what: Take, pending: PendingReply, effect: Mean, me: int, tools: Tools) -> None:
        self.what, self.pending, self.v, self.weight = what, pending, effect.v, effect.weight
        self.adder = tools.adder
        self.me = what.among.index(me)
        self.out = tools.memory.empty(what.length)
        self.strips = max(1, -(-4 * what.length // tools.strip_bytes))
        self.parts: dict[int, Strip] = {}  # under way
        self.ready: dict[int, None] = {}  # strips that may begin, in the order in which they came to be so
        self.done = 0
        self.total = 0.0
        self.rejected = False  # numbers of this worker
        self._check = tools.check
        self.began = self.last = time.monotonic()
        self.longest_gap = 0.0

    def where(self, strip: int) -> slice:
        """Returns which elements of the vector strip number `strip` holds."""
        length = self.what.length
        return slice(length * strip // self.strips, length * (strip + 1) // self.strips)

    def needs(self, strip: int) -> Any | None:
        """Returns the vector that must have arrived before `strip` begins, or None."""
        return self.v[self.where(strip)]

    def begin(self, strip: int) -> Strip:
        """Begins a strip that is ready, and returns this member's part in it."""
        del self.ready[strip]
        part = self.parts[strip] = self._part(strip)
        return part

    def _part(self, strip: int) -> Strip:
        """Returns this member's part in the mean of one strip, by the schedule of the mean."""
        what, where = self.what, self.where(strip)
        schedule = schedule_for(what.schedule, len(what.among), what.hosts)
        v = self.v[where]
        return ScheduleExecution(schedule, self.me, v, self.weight_of(v), self.out[where], self.adder)

    def weight_of(self, v: Any) -> float:
        """Returns the weight with which this worker's numbers `v` count: zero where the check rejects them."""
        if self._check is None or not self.weight or self._check(v):
            return self.weight
        self.rejected = True
        return 0.0

    def leaving(self, v: Any) -> Any:
        """Returns a piece as it travels."""
        return v

    def arrived(self, v: Any, weight: float) -> Any:
        """Does the inverse of `leaving`, and checks what counts. Raises ProtocolError or FalsePieceError."""
        return self.checked(v) if weight else v

    def checked(self, v: Any, member: int | None = None) -> Any:
        """Returns `v`. Raises FalsePieceError if it is not finite: honest members' numbers that are not count nothing.

        It is looked at before anything is made of it, so nobody passes it on, and the sender is known.
        """
        if self._check is not None and len(v) and not self._check(v):
            raise FalsePieceError("a piece has NaN or infinity", member)
        return v

    def finished(self, strip: int) -> None:
        """Closes a strip. Raises ProtocolError for what cannot be decoded."""
        weight = self.parts.pop(strip).weight
        self.total = min(self.total, weight) if self.done else weight
        self.done += 1

    def result(self) -> Averaged:
        """Returns the mean and the sum of weights, once all strips are done; zeros if nobody had weight.

        Raises Diverged where that is because everybody's numbers were rejected.
        """
        if self._check is not None and self.weight:
            self._check.judged(finite=not self.rejected, mean=True)
        if self.rejected and not self.total:
            raise nobody_counts(self.what.name)
        return Averaged(v=self.out if self.total else self.v * 0.0, weight=self.total)

    def heard(self) -> None:
        """Notes an arrival. The longest silence counts as waiting for the slowest member, the rest as communication."""
        now = time.monotonic()
        self.longest_gap, self.last = max(self.longest_gap, now - self.last), now

    @property
    def seconds_communicating(self) -> float:
        """Returns the seconds since the mean began, without the longest silence."""
        return time.monotonic() - self.began - self.longest_gap


class RoundedMeeting(Meeting):
    """Sends partial sums rounded. The member that adds up the last one also rounds it, so that all have the same."""

    def __init__(self, what: Take, pending: PendingReply, effect: Mean, me: int, tools: Tools) -> None:
        """Raises ProtocolError where no codec is asked for."""
        super().__init__(what, pending, effect, me, tools)
        self._coder = _coder_of(tools)

    def leaving(self, v: Any) -> Any:
        """Returns a piece in 16 bits a number; an empty one as it is."""
        return self._coder.encode(v) if len(v) else v

    def arrived(self, v: Any, weight: float) -> Any:
        return super().arrived(self._coder.decode(v) if isinstance(v, Encoded) else v, weight)

    def finished(self, strip: int) -> None:
        """Rounds the strip that this member has added up as it was sent, so that all members have the same."""
        super().finished(strip)
        where = self.where(strip)
        self.adder.copy(self._coder.rounded(self.out[where]), self.out[where])


class Gathering(Meeting):
    """Sends each member's encoded vector to all. Strip i is the share of member i.

    Shares are added in the order of members, whatever the order of arrival, so that all members get equal bits. A share
    is one piece, since its scales and indices belong to all its numbers. One of weight zero is empty, and the residual
    of error feedback keeps what it holds.
    """

    def __init__(self, what: Take, pending: PendingReply, effect: Mean, me: int, tools: Tools) -> None:
        """Raises ProtocolError where no codec is asked for."""
        super().__init__(what, pending, effect, me, tools)
        self._coder, self._series, self._nothing = _coder_of(tools), effect.series, tools.memory.empty(0)
        self.strips = self.at_once = len(what.among)
        self._came: dict[int, tuple[Any, float]] = {}

    def needs(self, strip: int) -> Any | None:
        """Returns the whole vector for the own share: a codec needs all of it."""
        return self.v if strip == self.me else None

    def _part(self, strip: int) -> GatheredShare:
        """Returns this member's part in passing a share on; its own share is encoded now."""
        what = self.what
        gathering = gathering_for(what.schedule, len(what.among), what.hosts)
        if strip != self.me:
            return GatheredShare(gathering, self.me, strip)
        weight = self.weight_of(self.v)
        v = self._coder.encode(self.v, self._series) if weight else self._nothing
        return GatheredShare(gathering, self.me, strip, v, weight)

    def arrived(self, v: Any, weight: float) -> Any:
        """Checks the length before the share is passed on, so that nobody is taken for its author."""
        if len(v) and (len(v) != self.what.length or not isinstance(v, Encoded)):
            raise FalsePieceError(f"the part has {len(v)} numbers")
        return v

    def finished(self, strip: int) -> None:
        """Adds shares in the order of members, as far as they have come."""
        share = self.parts.pop(strip)
        assert isinstance(share, GatheredShare)
        self._came[strip] = share.v, share.weight
        while self.done in self._came:
            self._add(self.done, *self._came.pop(self.done))
            self.done += 1

    def _add(self, member: int, v: Any, weight: float) -> None:
        """Adds the share of a member, weighted, to the mean so far. Raises FalsePieceError."""
        if not weight:
            return
        if not len(v):
            raise FalsePieceError("the part has a weight and no numbers", member)
        share = self.checked(self._coder.decode(v), member)
        self.total += weight
        if self.total == weight:
            self.adder.copy(share, self.out)
        else:
            self.adder.blend(self.out, share, weight / self.total, self.out)


def _coder_of(tools: Tools) -> MeanCoder:
    """Returns the codec of means. Raises ProtocolError where this worker has none."""
    if tools.coder is None:
        raise ProtocolError("the mean has encoded vectors, and this worker has no codec")
    return tools.coder


KINDS: dict[str, type[Meeting]] = {SUMS: RoundedMeeting, SHARES: Gathering}
"""The kind of mean for each coding; plain for all others."""


def meeting_of(what: Take, pending: PendingReply, effect: Mean, me: int, tools: Tools) -> Meeting:
    """Returns the meeting of the kind that the mean's coding asks for."""
    return KINDS.get(what.coding, Meeting)(what, pending, effect, me, tools)
