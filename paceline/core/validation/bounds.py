"""Bounds what one party may claim in a message: declared beside each field, checked where messages arrive.

    clock: Clock            a field of a message, with one of the annotated types below
    PlanLimits              what follows from the plan: workers, batch sizes, lengths

`paceline.core.validation.message_checker` checks messages against them. Each bound answers two questions: what is wrong
with a value (`fault`), and which allowed value is nearest to it (`nearest`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints

from paceline.core.vector import Vector

COUNT_MAX = 2**48
"""The most of any count that only grows: no run counts so far (a step a microsecond takes nine years)."""
SAMPLES_MAX = 2**24
"""The most samples of one contribution, where the plan does not know how large a mini-batch is."""
SECONDS_MAX = 1e10
BYTES_MAX = 2.0**63
NUMBER_MAX = 2.0**53
TEXT_MAX = 64 * 1024
"""The most characters of a text; the header of a frame has no more bytes."""
NAME_MAX = 1024
VALUE_MAX = 16 * 1024
"""The most characters of a value that a loop shares; the header has it with its quotes escaped."""
PIECES_MAX = 4096
ITEMS_MAX = TEXT_MAX
"""The most items of a list that has a few bytes for each; the header of a frame has no more."""
AHEAD_MAX = 1
REPEATS_MAX = 64
"""A worker may repeat its clock so many times, and once more for every 16 new ones."""
ROUNDS_AHEAD = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """Holds the limits that follow from the plan; 0 where one is not known.

    samples: the most of one contribution. length: elements of the model. epoch_samples: places of an epoch, where data
    is leased. epochs: of the run. slices: that one server has. repeats: how often a clock may come that is not new.
    """

    workers: int = 0
    servers: int = 0
    samples: int = SAMPLES_MAX
    length: int = 0
    epoch_samples: int = 0
    epochs: int = 0
    slices: int = 0
    repeats: int = REPEATS_MAX

    @property
    def rank(self) -> int:
        """Returns the highest rank; COUNT_MAX before the plan is known."""
        return self.workers - 1 if self.workers else COUNT_MAX

    @property
    def slice(self) -> int:
        """Returns the highest number of a slice."""
        return self.slices - 1 if self.slices else COUNT_MAX

    @property
    def place(self) -> int:
        """Returns the highest place of a sample in an epoch."""
        return self.epoch_samples or COUNT_MAX

    @property
    def epoch(self) -> int:
        """Returns the highest number of an epoch."""
        return self.epochs or COUNT_MAX

    @property
    def element(self) -> int:
        """Returns the highest end of a span of the model."""
        return self.length or COUNT_MAX

    @property
    def weight(self) -> float:
        """Returns the largest weight of one part of a mean; weights count samples or models."""
        return float(max(self.samples, 1))

    @property
    def total_weight(self) -> float:
        """Returns the highest weight of a mean: that of all workers together."""
        return self.weight * (self.workers or COUNT_MAX)

    @property
    def mass(self) -> float:
        """Returns the largest mass of all workers together: two a worker.

        A worker that joined when nobody had any mass began with one more of its own.
        """
        return 2.0 * self.workers if self.workers else NUMBER_MAX

    @property
    def total(self) -> int:
        """Returns the most samples that one worker can have trained, which is those of the run and
        one contribution each.
        """
        return self.epochs * self.epoch_samples + self.samples * (self.workers or 1) if self.epochs else COUNT_MAX


class Bound(Protocol):
    """Says what a field may be, under the limits of a plan."""

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        """Returns the bound as text, such as "between 0 and 3", where `value` is beyond it; None where it is not."""

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        """Returns `value` brought within its bound, or NOTHING."""


NOTHING = object()
"""Stands for a nearest value that does not exist."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number must lie between `low` and `high`, both included; `high` is a number or names one of the limits."""

    low: float
    high: float | str

    def top(self, limits: PlanLimits) -> float:
        """Returns the upper bound, which may depend on the plan."""
        return getattr(limits, self.high) if isinstance(self.high, str) else self.high

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        high = self.top(limits)
        return None if self.low <= value <= high else f"between {self.low:g} and {written(high)}"

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        """Returns the bound that is nearer; NaN becomes the lower one."""
        # The order of these comparisons brings NaN to `low`: every comparison with NaN is false.
        high = self.top(limits)
        return type(value)(high if value > high else value if value >= self.low else self.low)


@dataclass(frozen=True, slots=True)
class Identifier(Range):
    """A number says who or which is meant, so it has no nearest: another number would be somebody else."""

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        """Returns NOTHING: another number would be another worker or slice."""
        return NOTHING


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple has values that have each the same bound, at most `most` of them; `distinct`: none of them twice."""

    each: Range
    most: int = PIECES_MAX
    distinct: bool = False

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        if len(value) > self.most:
            return f"{self.most} of them at most"
        if self.distinct and len(set(value)) < len(value):
            return "each of them once"
        return next((why for one in value if (why := self.each.fault(one, limits))), None)

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        near = tuple([self.each.nearest(one, limits) for one in value[: self.most]])
        return NOTHING if NOTHING in near or (self.distinct and len(set(near)) < len(near)) else near


@dataclass(frozen=True, slots=True)
class Text:
    """Bounds a text, or bytes, to so many characters."""

    most: int = TEXT_MAX

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        return None if value is None or len(value) <= self.most else f"{self.most} characters at most"

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return value[: self.most]


@dataclass(frozen=True, slots=True)
class Texts:
    """Several texts stand in a tuple, or as keys and values of a dict."""

    each: Text = Text()
    most: int = PIECES_MAX

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        if len(value) > self.most:
            return f"{self.most} of them at most"
        texts = itertools.chain(value.keys(), value.values()) if isinstance(value, dict) else value
        return next((why for text in texts if (why := self.each.fault(text, limits))), None)

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return NOTHING


@dataclass(frozen=True, slots=True)
class Numbers:
    """Bounds a dict of numbers by name: all are finite, and names are short."""

    most: int = PIECES_MAX

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        if len(value) > self.most or any(len(name) > NAME_MAX for name in value):
            return f"{self.most} of them at most, with names of {NAME_MAX} characters at most"
        return None if all(map(math.isfinite, value.values())) else "finite"

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return NOTHING


@dataclass(frozen=True, slots=True)
class Intervals:
    """Spans of the model's vector must be in order, not empty, not touching each other, and within the model."""

    most: int = ITEMS_MAX

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        """Returns what is wrong: spans must be in order, not empty, and within the model."""
        if len(value) > self.most:
            return f"{self.most} of them at most"
        last = -1
        for start, stop in value:
            if not last < start < stop <= limits.element:
                return f"spans in order within {written(limits.element)} elements"
            last = stop
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        """Returns no span, which is always right: the gradient is then used everywhere."""
        return ()


@dataclass(frozen=True, slots=True)
class LeasedPieces:
    """Pieces of leased epochs are triples of epoch, start and stop.

    `one`: they have no more samples together than one contribution may have.
    """

    one: bool = True
    most: int = ITEMS_MAX

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        """Returns what is wrong: pieces must lie within their epoch, and be no more than one message may have."""
        if len(value) > self.most:
            return f"{self.most} of them at most"
        count = 0
        for epoch, start, stop in value:
            if not (0 <= epoch <= limits.epoch and 0 <= start < stop <= limits.place):
                return f"pieces of epochs up to {written(limits.epoch)} with {written(limits.place)} samples each"
            count += stop - start
        if self.one and count > limits.samples:
            return f"{written(limits.samples)} samples together at most"
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        """Returns no piece: the contribution then counts for no leased sample."""
        return ()


@dataclass(frozen=True, slots=True)
class Contributions:
    """Says what became of contributions, as triples of rank, fate and leased samples."""

    most: int = ITEMS_MAX

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        if len(value) > self.most:
            return f"{self.most} of them at most"
        for rank, fate, data in value:
            if not 0 <= rank <= limits.rank or len(fate) > NAME_MAX:
                return f"of ranks up to {written(limits.rank)}"
            if why := LeasedPieces().fault(data, limits):
                return why
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        """Returns those that are right, without the others."""
        return tuple([one for one in value[: self.most] if self.fault((one,), limits) is None])


@dataclass(frozen=True, slots=True)
class Groups:
    """Bounds groups of ranks: none is in two of them."""

    most: int = PIECES_MAX

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        if len(value) > self.most:  # empty ones have no rank by which they could be counted
            return f"{self.most} of them at most"
        ranks = Several(Identifier(0, "rank"), distinct=True)
        return ranks.fault(tuple(itertools.chain.from_iterable(value)), limits)

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return NOTHING


@dataclass(frozen=True, slots=True)
class Ticks(Range):
    """A clock of the sender grows by one from message to message, or by up to `ahead`.

    `repeats`: how often it may stay the same; COUNT_MAX where that does not matter.
    """

    ahead: int = AHEAD_MAX
    repeats: int = REPEATS_MAX


@dataclass(frozen=True, slots=True)
class Checked:
    """Lets everything pass: the sender is trusted, or the value is checked in full where it is read;
    `why` says which.
    """

    why: str

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        """Returns None: whoever uses the field checks it, as its reason says."""
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Length:
    """A vector must be as long as what the receiver holds of the model, or no longer where it is not `exact`. The
    checker compares lengths itself; there is no nearest vector.
    """

    exact: bool = True

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return value


# ---- the types of fields ---------------------------------------------------------------------------------
Clock = Annotated[int, Ticks(1, COUNT_MAX)]
"""Counts exchanges of the sender, one by one."""
RoundNumber = Annotated[int, Ticks(-1, COUNT_MAX, ROUNDS_AHEAD, COUNT_MAX)]
"""Counts rounds, not all of which the sender tells each receiver."""
ExchangeNumber = Annotated[int, Ticks(-1, COUNT_MAX, 4, COUNT_MAX)]
"""Counts exchanges, which are asked for ahead, and more than once."""
Count = Annotated[int, Range(0, COUNT_MAX)]
Samples = Annotated[int, Range(0, "samples")]
"""The samples of one contribution."""
Seconds = Annotated[float, Range(0.0, SECONDS_MAX)]
Speed = Annotated[float, Range(0.0, BYTES_MAX)]
"""Steps, samples or bytes a second."""
Weight = Annotated[float, Range(0.0, "weight")]
Real = Annotated[float, Range(-NUMBER_MAX, NUMBER_MAX)]
Reals = Annotated[tuple[float, ...], Several(Range(-NUMBER_MAX, NUMBER_MAX))]
Rank = Annotated[int, Identifier(0, "rank")]
Ranks = Annotated[tuple[int, ...], Several(Identifier(0, "rank"), distinct=True)]
Slice = Annotated[int, Identifier(0, "slice")]
Elements = Annotated[int, Identifier(0, "element")]
Unused = Annotated[tuple[tuple[int, int], ...], Intervals()]
Leased = Annotated[tuple[tuple[int, int, int], ...], LeasedPieces()]
LeasedByAll = Annotated[tuple[tuple[int, int, int], ...], LeasedPieces(one=False)]
Name = Annotated[str, Text(NAME_MAX)]
ValueText = Annotated[str, Text(VALUE_MAX)]
LongText = Annotated[str, Text()]
LongBytes = Annotated[bytes, Text()]
MaybeBytes = Annotated[bytes | None, Text()]
Names = Annotated[tuple[str, ...], Texts(Text(NAME_MAX))]
Scalars = Annotated[dict[str, float], Numbers()]
Counts = Annotated[tuple[int, ...], Several(Range(0, COUNT_MAX), most=ITEMS_MAX)]
Integers = Annotated[tuple[int, ...], Several(Range(-COUNT_MAX, COUNT_MAX), most=ITEMS_MAX)]
Integer = Annotated[int, Range(-COUNT_MAX, COUNT_MAX)]
Speeds = Annotated[tuple[float, ...], Several(Range(0.0, BYTES_MAX))]
TotalSamples = Annotated[int, Range(0, "total")]
"""The samples of one worker since the run began."""
MeanWeight = Annotated[float, Range(0.0, "total_weight")]
"""The weight of several contributions together."""
AnyWeight = Annotated[float, Range(0.0, NUMBER_MAX)]
"""The weight of a model or of buffers that are read: samples, versions, or the mass of a gossip scheme."""
Mass = Annotated[float, Range(0.0, "mass")]
"""The weight of a model in a gossip scheme; all workers together have one for each of them."""
Fraction = Annotated[float, Range(0.0, 1.0)]
Loss = Annotated[float, Checked("it may be infinite or no number where training went wrong; it is shown, nothing more")]
VersionWanted = Annotated[int, Range(-1, COUNT_MAX)]
Fates = Annotated[tuple[tuple[int, str, tuple[tuple[int, int, int], ...]], ...], Contributions()]
HostGroups = Annotated[tuple[tuple[int, ...], ...], Groups()]
Amount = Annotated[int, Range(-(2.0**63), 2.0**63)]
Whole = Annotated[Vector, Length()]
"""A vector as long as the model, of which each server gets just its slice; or as the value of a key."""
Fragment = Annotated[Vector, Length(exact=False)]
"""A part of the model. The role compares it with that part's length."""
OfOneLength = Annotated[Vector, Checked("the role that collects what has one tag compares the lengths")]
"""A vector as long as those that others send under the same tag. The memory of an optimizer, which is averaged so, may
be several times as long as the model."""
Strip = Annotated[Vector, Checked("the carrier of means compares it with the piece that its schedule expects")]
Asked = Annotated[Vector, Checked("whoever reads what others publish, or keeps copies, compares it with what it needs")]
OfKey = Annotated[Vector, Checked("the server of a key-value store compares it with the value of the key")]
Parcel = Annotated[Vector, Checked("the packer compares it, and the message inside is checked by itself")]


def bounds_of(cls: type) -> dict[str, Bound | None]:
    """Returns the bound of each field of a message class; None where none is declared. A bool needs none."""
    found: dict[str, Bound | None] = {}
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        declared = (
            [one for one in get_args(hint)[1:] if hasattr(one, "nearest")] if get_origin(hint) is Annotated else []
        )
        if declared:
            found[field.name] = declared[0]
        elif hint is not bool:
            found[field.name] = None
    return found


def written(value: float) -> str:
    """Returns a number as text, whole ones without a point."""
    return f"{value:d}" if isinstance(value, int) else f"{value:g}"
