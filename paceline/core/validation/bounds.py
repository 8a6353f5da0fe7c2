"""Bounds of what one party may claim in a message: declared beside each field, checked where messages arrive.

    clock: Clock            a field of a message, with one of the annotated types below
    PlanLimits              what follows from the plan: workers, batch sizes, lengths

`paceline.core.validation.message_checker` checks messages against them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, get_args, get_origin, get_type_hints

from paceline.core.vector import Vector

COUNT_MAX = 2**48
"""Of what only grows: no run counts so far (a step a microsecond takes nine years)."""
SAMPLES_MAX = 2**24
"""Of one contribution, where the plan does not know how large a mini-batch is."""
SECONDS_MAX = 1e10
BYTES_MAX = 2.0**63
NUMBER_MAX = 2.0**53
TEXT_MAX = 64 * 1024
"""Characters; the header of a frame has no more bytes."""
NAME_MAX = 1024
PIECES_MAX = 4096
AHEAD_MAX = 1
REPEATS_MAX = 64
"""So many more clocks of a worker may be repeated than a sixteenth of those that are new."""
ROUNDS_AHEAD = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What follows from the plan. 0: not known.

    samples: most of one contribution. length: elements of the model. epoch_samples: places of an epoch, where data is
    leased. epochs: of the run. slices: that one server has. repeats: how often a clock may come that is no new one.
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
        return self.workers - 1 if self.workers else COUNT_MAX

    @property
    def slice(self) -> int:
        return self.slices - 1 if self.slices else COUNT_MAX

    @property
    def place(self) -> int:
        return self.epoch_samples or COUNT_MAX

    @property
    def epoch(self) -> int:
        return self.epochs or COUNT_MAX

    @property
    def element(self) -> int:
        return self.length or COUNT_MAX

    @property
    def weight(self) -> float:
        """A mean counts samples or models."""
        return float(max(self.samples, 1))

    @property
    def total_weight(self) -> float:
        return self.weight * (self.workers or COUNT_MAX)

    @property
    def mass(self) -> float:
        """Of all workers together. Each that came when nobody had any has brought one more."""
        return 2.0 * self.workers if self.workers else NUMBER_MAX

    @property
    def total(self) -> int:
        return self.epochs * self.epoch_samples + self.samples * (self.workers or 1) if self.epochs else COUNT_MAX


class Bound(Protocol):
    """What a field may be, under the limits of a plan."""

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        """What the bound is, where `value` is beyond it; "between 0 and 3"."""

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        """`value` within its bound, or NOTHING."""


NOTHING = object()
"""In place of a nearest value: there is none."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`, both of which may be; `high` is a number or names one of the limits."""

    low: float
    high: float | str

    def top(self, limits: PlanLimits) -> float:
        return getattr(limits, self.high) if isinstance(self.high, str) else self.high

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        high = self.top(limits)
        return None if self.low <= value <= high else f"between {self.low:g} and {written(high)}"

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        # Comparisons with NaN are all false: it becomes `low`.
        high = self.top(limits)
        return type(value)(high if value > high else value if value >= self.low else self.low)


@dataclass(frozen=True, slots=True)
class Identifier(Range):
    """A number that says who or which: another one would be somebody else."""

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return NOTHING


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple of values that have each the same bound, at most `most` of them; `distinct`: none of them twice."""

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
    """A text, or bytes, of so many characters at most."""

    most: int = TEXT_MAX

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        return None if value is None or len(value) <= self.most else f"{self.most} characters at most"

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return value[: self.most]


@dataclass(frozen=True, slots=True)
class Texts:
    """Several texts in a tuple, or keys and values of a dict."""

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
    """Finite numbers by name."""

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        if len(value) > PIECES_MAX or any(len(name) > NAME_MAX for name in value):
            return f"{PIECES_MAX} of them at most, with names of {NAME_MAX} characters at most"
        return None if all(map(math.isfinite, value.values())) else "finite"

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return NOTHING


@dataclass(frozen=True, slots=True)
class Intervals:
    """Spans of the model's vector: in order, none empty, none touching the next, all within the model."""

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        last = -1
        for start, stop in value:
            if not last < start < stop <= limits.element:
                return f"spans in order within {written(limits.element)} elements"
            last = stop
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return ()


@dataclass(frozen=True, slots=True)
class LeasedPieces:
    """Pieces of leased epochs: epoch, start, stop. `one`: no more samples together than one contribution has."""

    one: bool = True

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        count = 0
        for epoch, start, stop in value:
            if not (0 <= epoch <= limits.epoch and 0 <= start < stop <= limits.place):
                return f"pieces of epochs up to {written(limits.epoch)} with {written(limits.place)} samples each"
            count += stop - start
        if self.one and count > limits.samples:
            return f"{written(limits.samples)} samples together at most"
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return ()


@dataclass(frozen=True, slots=True)
class Contributions:
    """What became of contributions: rank, fate and leased samples of each."""

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        for rank, fate, data in value:
            if not 0 <= rank <= limits.rank or len(fate) > NAME_MAX:
                return f"of ranks up to {written(limits.rank)}"
            if why := LeasedPieces().fault(data, limits):
                return why
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return tuple([one for one in value if self.fault((one,), limits) is None])


@dataclass(frozen=True, slots=True)
class Groups:
    """Several groups of ranks, which have nobody in common."""

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        ranks = Several(Identifier(0, "rank"), distinct=True)
        return ranks.fault(tuple(itertools.chain.from_iterable(value)), limits)

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return NOTHING


@dataclass(frozen=True, slots=True)
class Ticks(Range):
    """A clock of the sender that grows by one from message to message; `ahead`: by so many at most."""

    ahead: int = AHEAD_MAX
    repeats: int = REPEATS_MAX


@dataclass(frozen=True, slots=True)
class Checked:
    """What is said by somebody the receiver trusts, or is checked in full where it is read; `why` says which."""

    why: str

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Length:
    """A vector that is as long as what the receiver holds. One of another length has no nearest."""

    def fault(self, value: Any, limits: PlanLimits) -> str | None:
        return None

    def nearest(self, value: Any, limits: PlanLimits) -> Any:
        return value


# ---- the types of fields ---------------------------------------------------------------------------------
Clock = Annotated[int, Ticks(1, COUNT_MAX)]
"""Counts exchanges of the sender, one by one."""
RoundNumber = Annotated[int, Ticks(-1, COUNT_MAX, ROUNDS_AHEAD, COUNT_MAX)]
"""Counts rounds, of which the sender need not tell each receiver."""
ExchangeNumber = Annotated[int, Ticks(-1, COUNT_MAX, 4, COUNT_MAX)]
"""The same, of exchanges that are asked for ahead, and more than once."""
Count = Annotated[int, Range(0, COUNT_MAX)]
Samples = Annotated[int, Range(0, "samples")]
"""Of one contribution."""
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
LongText = Annotated[str, Text()]
LongBytes = Annotated[bytes, Text()]
MaybeBytes = Annotated[bytes | None, Text()]
Names = Annotated[tuple[str, ...], Texts(Text(NAME_MAX))]
Scalars = Annotated[dict[str, float], Numbers()]
Counts = Annotated[tuple[int, ...], Several(Range(0, COUNT_MAX), most=TEXT_MAX)]
Integers = Annotated[tuple[int, ...], Several(Range(-COUNT_MAX, COUNT_MAX), most=TEXT_MAX)]
Integer = Annotated[int, Range(-COUNT_MAX, COUNT_MAX)]
Speeds = Annotated[tuple[float, ...], Several(Range(0.0, BYTES_MAX))]
TotalSamples = Annotated[int, Range(0, "total")]
"""Of one worker since the run began."""
MeanWeight = Annotated[float, Range(0.0, "total_weight")]
"""Of several contributions together."""
AnyWeight = Annotated[float, Range(0.0, NUMBER_MAX)]
"""Of a model or of buffers that are looked at: samples, versions, or the mass of a gossip scheme."""
Mass = Annotated[float, Range(0.0, "mass")]
"""What a model of a gossip scheme counts; all workers together have one for each of them."""
Fraction = Annotated[float, Range(0.0, 1.0)]
Loss = Annotated[float, Checked("it may be infinite or no number where training went wrong; it is shown, nothing more")]
VersionWanted = Annotated[int, Range(-1, COUNT_MAX)]
Fates = Annotated[tuple[tuple[int, str, tuple[tuple[int, int, int], ...]], ...], Contributions()]
HostGroups = Annotated[tuple[tuple[int, ...], ...], Groups()]
Amount = Annotated[int, Range(-(2.0**63), 2.0**63)]
Whole = Annotated[Vector, Length()]
"""A vector of which each server gets just its slice."""


def bounds_of(cls: type) -> dict[str, Bound | None]:
    """By field; None where none is declared. A bool is its own bound."""
    found: dict[str, Bound | None] = {}
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        declared = (
            [one for one in get_args(hint)[1:] if hasattr(one, "nearest")] if get_origin(hint) is Annotated else []
        )
        if declared:
            found[field.name] = declared[0]
        elif hint is not bool and hint is not Vector:
            found[field.name] = None
    return found


def written(value: float) -> str:
    return f"{value:d}" if isinstance(value, int) else f"{value:g}"
