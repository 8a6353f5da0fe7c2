"""A worker that lies: scalars of its messages are replaced by hostile values, drawn from the seed.

    numbers      zero, negative, one off, at and beyond every power of two that a program may use, NaN and infinity
    ranks        of nobody, of others, twice
    clocks       behind, one too far ahead, 2^60
    spans        empty, backwards, beyond the end
    leases       of others, of epochs that there will never be
    names        empty, long, another one
    vectors      empty, one element short or too many, twice as long
    rounds       far ahead of its own, within what a message may say

Numbers in vectors stay as they are, for these are what the gate and robust means are for; types too, which are checked
where bytes are decoded. A lie changes one field or two of one message; half of the lies that go to several servers tell
each of them something else. One liar in three lies in lengths, too, and one in three in rounds far ahead: of those of
its lies that have a vector, or a round, to spoil, one in four.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan, nextafter
from random import Random
from typing import Any, get_args, get_origin, get_type_hints

from paceline.core.message import scalar_fields, vector_fields
from paceline.core.validation.bounds import AHEAD_MAX, Length, PlanLimits, Range, Ticks, bounds_of
from paceline.sim.kernel.vectors import memory_for

INTEGERS = (0, -1, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**53 + 1, 2**60, 2**63, 2**70, -(2**60))
"""Integers that programs take for granted they never see: signs, and the borders of 8, 31, 32, 53 and 63 bits."""
FLOATS = (0.0, -0.0, -1.0, 0.5, 5e-324, 1e-9, 1e9, 1e300, -1e300, nan, inf, -inf)
"""Floats at the ends of their range, and those that no comparison orders."""
FACTORS = (-1, 2, 10, 1000)
"""Factors by which a true value is multiplied, so that some lies are plausible."""
STANDS_STILL = {
    *(
        "RoundSent.round",
        "GroupRequest.done",
        "GroupDone.done",
        "Report.round",
        "PhaseEntered.phase",
        "PhaseEnded.phase",
        "GoOn.phase",
        "GoOn.number",
        "GoOn.meet",
    ),
    *("Move.group", "Move.number", "Timed.done", "Part.among", "Report.seconds", "Entered.round"),
    *("EnterGroup.turn", "WhoSpeaks.after", "GroupBegin.steps"),
    *("RoundBegin.turn", "RoundBegin.steps", "RoundBegin.casts", "RoundBegin.cast"),
}
"""Fields that say where a worker is. Who names a round, a phase or a group in which nobody else is stands still, and
holds the others up as a worker does that incarnations and does nothing; nothing in a scheme tells the two apart. So
does one that speaks for a group, and tells its members of another round than its own."""
AT_THE_EDGE = 0.3
"""How likely a lie is to be the last value within the bound, or the first beyond it."""
EACH_SERVER_ANOTHER = 0.5
"""How likely a lie to several servers tells each of them something else."""
LIES_IN_LENGTHS, OF_LENGTH = 1 / 3, 1 / 4
"""How likely a liar lies in the lengths of vectors, and how likely such a liar's lie is one of them. A server expels a
worker for the first of these; so the other liars lie for longer."""
LIES_IN_ROUNDS, OF_ROUND = 1 / 3, 1 / 4
"""The same of rounds far ahead, which are within the bounds: what holds of them is what the role itself knows."""
TWO_FIELDS = 0.2
"""How likely a lie changes two fields instead of one."""


def hostile(random: Random, value: Any, edges: Sequence[Any] = (), wide: int = 1) -> Any:
    """Returns a value that a party might not expect in place of `value`, of the same type.

    edges: values at and beyond the bounds of the field. wide: numbers in each item of a tuple (`width`).
    """
    if edges and random.random() < AT_THE_EDGE:
        return random.choice(edges)
    match value:
        case bool():
            return not value
        case int():
            near = (value - 1, value + 1, value + 2, value * random.choice(FACTORS))
            return random.choice(near) if random.random() < 0.5 else random.choice(INTEGERS)
        case float():
            return value * random.choice(FACTORS) if random.random() < 0.3 else random.choice(FLOATS)
        case str():
            return random.choice(("", f"{value}1", value[:-1], "x" * 4096, "None"))
        case tuple():
            return _hostile_tuple(random, value, wide)
    return None


def wrong_length(random: Random, v: Any) -> Any:
    """Returns `v` with fewer elements or more."""
    memory, length = memory_for(v), len(v)
    short = [v[:n] for n in {0, length // 2, max(0, length - 1)} if n < length]
    return random.choice([*short, memory.join([v, memory.empty(1)]), memory.join([v, memory.empty(max(1, length))])])


def lengths_of(cls: type) -> tuple[str, ...]:
    """Returns the vectors of a message class of which receivers check the length."""
    return tuple(name for name, bound in bounds_of(cls).items() if isinstance(bound, Length))


def rounds_of(cls: type) -> dict[str, int]:
    """Returns the fields of a message class that count rounds, with how far ahead of the last one each may be."""
    ticks = {name: bound.ahead for name, bound in bounds_of(cls).items() if isinstance(bound, Ticks)}
    return {name: ahead for name, ahead in ticks.items() if ahead > AHEAD_MAX and _may_lie(cls, name)}


def _may_lie(cls: type, name: str) -> bool:
    return f"{cls.__name__}.{name}" not in STANDS_STILL


def edges_of(cls: type, limits: PlanLimits) -> dict[str, tuple[Any, ...]]:
    """Returns, for each field with a range, both ends and the next values beyond them."""
    found: dict[str, tuple[Any, ...]] = {}
    kinds = get_type_hints(cls)
    for name, bound in bounds_of(cls).items():
        if isinstance(bound, Range):
            low, high = bound.low, bound.top(limits)
            step = 1 if kinds[name] is int else nextafter(high, inf) - high
            found[name] = tuple(map(kinds[name], (low, low - 1, high, high + step)))
    return found


def _hostile_tuple(random: Random, value: tuple[Any, ...], wide: int) -> tuple[Any, ...]:
    """Returns a hostile tuple of ranks (`wide` 1), of spans (2) or of pieces of leases (3)."""
    if value and random.random() < 0.5:
        at = random.randrange(len(value))
        return random.choice((value[:at] + value[at + 1 :], value + value[at : at + 1], tuple(reversed(value))))
    if wide == 1:
        return random.choice(((), (random.choice(INTEGERS),), (*value, random.randrange(8))))
    start, start_of_2, length = (
        random.randrange(40),
        random.randrange(4),
        random.choice((-3, 0, 1, 3, 40, 2**40, 2**63)),
    )
    spans = [(start, start + length)] + [(start_of_2, start_of_2 + 2)] * random.randrange(2)
    epoch = random.choice((0, 0, 1, 2, *INTEGERS))
    return tuple(spans) if wide == 2 else tuple((epoch, *span) for span in spans)


def width(hint: Any) -> int:
    """Returns how many numbers each item of a tuple of that type has: 1 for ranks, 2 for spans, 3 for pieces of
    leases."""
    item = get_args(hint)[:1]
    return len(get_args(item[0])) if item and get_origin(item[0]) is tuple else 1


@dataclass(slots=True)
class Lying:
    """Says how one worker lies: `until` that time, one message in `one_in`."""

    until: float
    one_in: int


class Lies:
    """Makes messages of lying workers hostile, drawn from the seed. `told` counts lies by message and field."""

    def __init__(self, seed: int, limits: PlanLimits) -> None:
        self._edges: Callable[[type], dict[str, tuple[Any, ...]]] = functools.cache(lambda cls: edges_of(cls, limits))
        self._random, self._lengths = Random(f"{seed}/lies"), Random(f"{seed}/lies/lengths")
        self._in_lengths = self._lengths.random() < LIES_IN_LENGTHS
        self._vectors: Callable[[type], tuple[str, ...]] = functools.cache(lengths_of)
        self._rounds = Random(f"{seed}/lies/rounds")
        self._in_rounds = self._rounds.random() < LIES_IN_ROUNDS
        self._counted: Callable[[type], dict[str, int]] = functools.cache(rounds_of)
        self._lying: dict[int, Lying] = {}
        self.ever: set[int] = set()  # who has begun to lie
        self.told: Counter[str] = Counter()

    def begin(self, rank: int, until: float, one_in: int) -> None:
        """Makes worker `rank` lie until virtual time `until`, in one of `one_in` messages."""
        self._lying[rank] = Lying(until, one_in)
        self.ever.add(rank)

    def parts(self, now: float, rank: int, parts: Sequence[Any]) -> Sequence[Any]:
        """Returns `parts`, one message as each receiver gets it, or a lie of worker `rank` in their place."""
        lying = self._lying.get(rank)
        if lying is None or now >= lying.until or self._random.randrange(lying.one_in):
            return parts
        kind = type(parts[0])
        vectors = self._vectors(kind) if self._in_lengths else ()
        if vectors and self._lengths.random() < OF_LENGTH:
            name = self._lengths.choice(vectors)
            return [self._changed(part, {name: wrong_length(self._lengths, getattr(part, name))}) for part in parts]
        rounds = self._counted(kind) if self._in_rounds else {}
        if rounds and self._rounds.random() < OF_ROUND:
            name = self._rounds.choice(list(rounds))
            value = getattr(parts[0], name) + self._rounds.randint(2, rounds[name])
            return [self._changed(part, {name: value}) for part in parts]
        names = [name for name in scalar_fields(kind) if _may_lie(kind, name)]
        if not names:
            return parts
        chosen = self._random.sample(names, min(len(names), 1 + (self._random.random() < TWO_FIELDS)))
        if self._random.random() < EACH_SERVER_ANOTHER:
            return [self._changed(part, self._values(part, chosen)) for part in parts]
        values = self._values(parts[0], chosen)
        return [self._changed(part, values) for part in parts]

    def _values(self, message: Any, names: Sequence[str]) -> dict[str, Any]:
        """Returns hostile values for the fields `names` of `message`."""
        cls: type[Any] = type(message)
        edges, hints = self._edges(cls), get_type_hints(type(message))
        return {
            name: hostile(self._random, getattr(message, name), edges.get(name, ()), width(hints[name]))
            for name in names
        }

    def _changed(self, message: Any, values: dict[str, Any]) -> Any:
        """Returns `message` with those values. Other vectors are the same objects, not copies."""
        cls = type(message)
        for name in values:
            self.told[f"{cls.__name__}.{name}"] += 1
        fields = {name: getattr(message, name) for name in (*vector_fields(cls), *scalar_fields(cls))}
        return cls(**{**fields, **values})
