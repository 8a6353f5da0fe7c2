"""Checks what a party claims in a message against the bounds of its fields, where messages arrive.

    check       None, or one sentence that names the field, its value and its bound
    nearest     the message as it would be within its bounds; None where there is no such message

A sender that claims more than its bound allows gets no more than a claim within the bound would have given it. A number
is brought to its nearest bound, so that nobody who waits for the message waits for ever. A field that says *who* (a
rank, a group) has no nearest value, and the message is dropped.

Clocks are bounded by those already seen. A worker's clock counts its pushes, so each is one more than the last:

    the clock is                              then
    the first of its sender                   accepted if 1; of a newcomer, up to 2 more than the furthest worker, or
                                              than it was before it came back; any, where the checker itself began in
                                              the middle of the run
    one more than the last                    accepted
    the last one again                        accepted, up to `repeats` times: a restarted worker repeats its push
                                              (live runs allow none: there a restart is a new incarnation)
    anything else                             at fault

A driver says so when a clock may begin anew. `came` tells of a worker's next incarnation, `forget_all` of servers that
went back; a worker that enters another phase of `hybrid` says so itself (`begins_anew`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.core.message import hints_of
from paceline.core.validation.bounds import (
    COUNT_MAX,
    NOTHING,
    NUMBER_MAX,
    Bound,
    Checked,
    Length,
    PlanLimits,
    Range,
    Text,
    Ticks,
    bounds_of,
    written,
)

_BY_TYPE: dict[Any, Bound] = {int: Range(-NUMBER_MAX, NUMBER_MAX), float: Range(-NUMBER_MAX, NUMBER_MAX), str: Text()}
"""The bounds of fields that declare none, as those of a scheme outside this package may."""
NEW_AHEAD = 2
"""A newcomer may begin so far ahead of the furthest worker: it follows one whose messages may still be on their way."""
STRIKES = 3
"""A worker is expelled after so many false claims, and reported again after as many more."""


class _Table:
    """Holds what is checked of one class under given limits: ranges first, by far the most, then all else.

    It is made once a class, so that checking a message looks up no types.
    """

    __slots__ = ("begins_anew", "bounds", "clock", "family", "lengths", "others", "ranges", "repeated")

    def __init__(self, cls: type, limits: PlanLimits) -> None:
        self.bounds: dict[str, Bound] = {}  # all bounds but those of lengths
        self.ranges: list[tuple[str, float, float]] = []
        self.others: list[tuple[str, Bound]] = []
        self.clock: tuple[str, Ticks] | None = None
        self.lengths: list[tuple[str, bool]] = []  # of vectors; True: exactly what the receiver holds
        self.begins_anew: bool = getattr(cls, "begins_anew", False)
        hints = hints_of(cls)
        for name, declared in bounds_of(cls).items():
            bound = declared or _BY_TYPE.get(hints[name])
            if bound is None or isinstance(bound, Checked):
                continue
            if isinstance(bound, Length):
                self.lengths.append((name, bound.exact))
                continue
            self.bounds[name] = bound
            if isinstance(bound, Range):
                self.ranges.append((name, bound.low, bound.top(limits)))
                if isinstance(bound, Ticks):
                    self.clock = name, bound
            else:
                self.others.append((name, bound))
        self.repeated = self.clock is not None and self.clock[1].repeats < COUNT_MAX
        # A message that derives from another one, such as a push to a new group, goes on with its clock.
        self.family = _declares(cls, self.clock[0]) if self.clock else cls


def _declares(cls: type, field: str) -> type:
    """Returns the class among the bases of `cls` that introduced `field`."""
    return next(base for base in reversed(cls.__mro__) if field in inspect.get_annotations(base))


@dataclass(slots=True)
class _Seen:
    """Remembers the last clock of one sender, and how often more than usual it was not a new one."""

    clock: int
    repeats: float = 0.0


class Checker:
    """Checks the messages of one receiver.

    A sender is known by whatever the driver knows it by. `stream`: one of several from it, such as the slices of a
    push, which have each the same clock.

    from_start: nobody has sent anything to a receiver before this one, so clocks begin with 1. Those of a newcomer
    begin about where the others are.
    """

    def __init__(self, limits: PlanLimits, *, from_start: bool = False) -> None:
        self.limits, self._from_start = limits, from_start
        self._tables: Callable[[type], _Table] = functools.cache(lambda cls: _Table(cls, limits))
        self._seen: dict[tuple[Any, Any, type], _Seen] = {}
        self._newcomers: set[Any] = set()
        # By stream and family: the furthest clock of incarnations that are over. A newcomer may have taken over from
        # one of them, and be the first that goes on from there.
        self._former: dict[tuple[Any, type], int] = {}

    def came(self, src: Any) -> None:
        """Another incarnation of `src` begins, whose clocks do not go on from those of the last one."""
        self._newcomers.add(src)
        for key, seen in self._seen.items():
            if key[0] == src:
                self._former[key[1:]] = max(seen.clock, self._former.get(key[1:], 0))
        self._forget(src)

    def _forget(self, src: Any) -> None:
        for key in [key for key in list(self._seen) if key[0] == src]:
            del self._seen[key]

    def forget_all(self) -> None:
        """Forgets all clocks: servers went back to an earlier state, and what was pushed since is pushed again."""
        self._seen.clear()
        self._former.clear()
        self._from_start = False

    def check(self, src: Any, message: Any, stream: Any = 0, length: int = 0) -> str | None:
        """Returns what is wrong with what `src` claims, or None.

        `length`: elements of the model that the receiver holds; 0: not known.
        """
        cls = type(message)
        table = self._tables(cls)
        # Comparisons with NaN are false, so `not low <= value <= high` catches it.
        for name, low, high in table.ranges:
            value = getattr(message, name)
            if not low <= value <= high:
                return _fault(cls, name, value, f"between {low:g} and {written(high)}")
        for name, bound in table.others:
            value = getattr(message, name)
            if value and (why := bound.fault(value, self.limits)):
                return _fault(cls, name, value, why)
        if length and table.lengths and (why := self.misfit(message, length)):
            return why
        if table.begins_anew:
            self._forget(src)
        return self._tick(src, stream, cls, message, table) if table.clock else None

    def misfit(self, message: Any, length: int) -> str | None:
        """Returns what is wrong with the length of a vector at a receiver that holds `length` elements, or None."""
        cls = type(message)
        for name, exact in self._tables(cls).lengths:
            found = len(getattr(message, name))
            if found != length and (exact or found > length):
                return _fault(cls, f"the length of {name}", found, f"{length}{'' if exact else ' at most'}")
        return None

    def _tick(self, src: Any, stream: Any, cls: type, message: Any, table: _Table) -> str | None:
        """Returns what is wrong with the clock, or None; takes note of it if nothing is. See the table above."""
        assert table.clock is not None
        name, ticks = table.clock
        clock, key = getattr(message, name), (src, stream, table.family)
        seen = self._seen.get(key)
        if seen is None:
            if self._from_start and table.repeated:
                most = self._highest(stream, table.family) + NEW_AHEAD if src in self._newcomers else 1
                if clock > most:
                    return _fault(cls, name, clock, f"at most {most} to begin with")
            self._seen[key] = _Seen(clock)
            return None
        if clock == seen.clock + 1:
            seen.clock = clock
            if seen.repeats:
                seen.repeats = max(0.0, seen.repeats - 1 / 16)  # 16 new clocks make up for one repeat
            return None
        if clock > seen.clock + ticks.ahead:
            return _fault(cls, name, clock, f"at most {seen.clock + ticks.ahead}, after {seen.clock}")
        if not table.repeated:
            seen.clock = max(seen.clock, clock)
            return None
        if clock != seen.clock or seen.repeats + 1 > self.limits.repeats:
            return _fault(cls, name, clock, f"{seen.clock + 1}: it is no new one")
        seen.repeats += 1
        return None

    def _highest(self, stream: Any, family: type) -> int:
        """Returns the clock of the sender that is furthest, or was before another incarnation of it came."""
        former = self._former.get((stream, family), 0)
        return max([former, *(seen.clock for key, seen in self._seen.items() if key[1:] == (stream, family))])

    def nearest(self, src: Any, message: Any, stream: Any = 0, length: int = 0) -> Any | None:
        """Returns `message`, in which `check` has found a fault, within its bounds; None where it has to be dropped."""
        table, values = self._tables(type(message)), {}
        if length and self.misfit(message, length):
            return None
        for name, bound in table.bounds.items():
            value = getattr(message, name)
            # Fields within their bounds stay as they are; one that has no nearest value drops the message.
            near = value if bound.fault(value, self.limits) is None else bound.nearest(value, self.limits)
            if near is NOTHING:
                return None
            values[name] = near
        if table.clock:
            name, ticks = table.clock
            values[name] = self._nearest_clock(getattr(message, name), ticks, (src, stream, table.family))
        return dataclasses.replace(message, **values)

    def _nearest_clock(self, clock: int, ticks: Ticks, key: Any) -> int:
        """Returns the clock nearest to what is allowed, and takes note of it.

        Where each clock has to be one more than the last it is that. Anything less would be taken for a repeat, and a
        worker that is part of a round on one server and not on another delays everybody.
        """
        seen = self._seen.get(key)
        last = seen.clock if seen else 0
        if ticks.ahead > 1:
            near = max(last, min(max(clock, int(ticks.low)), last + ticks.ahead, COUNT_MAX))
        elif seen is None and self._from_start:
            near = max(1, self._highest(*key[1:])) if key[0] in self._newcomers else 1
        else:
            near = clock if seen is None and ticks.low <= clock <= COUNT_MAX else last + 1
        self._seen[key] = _Seen(near, seen.repeats if seen else 0.0)
        return near


def _fault(cls: type, field: str, value: Any, bound: str) -> str:
    """Returns the sentence: field, value, bound."""
    text = repr(value)
    return f"{cls.__name__}: {field} is {text if len(text) <= 60 else text[:57] + '...'}, which has to be {bound}"


class FalseClaims:
    """Counts who has sent messages beyond their bounds, as one receiver has seen it. `strikes`: by sender."""

    def __init__(self) -> None:
        self.strikes: Counter[Any] = Counter()

    def strike(self, src: Any, why: str, *, at_once: bool) -> str | None:
        """Counts a false claim of `src`. Returns why it is to be expelled, or None.

        at_once: the message cannot come from a correct program, so one is enough.
        """
        self.strikes[src] += 1
        count = self.strikes[src]
        if not at_once and count % STRIKES:
            return None
        many = "a message that cannot be" if at_once else f"{count} messages beyond their bounds, the last"
        return f"false claims: {many}: {why}"
