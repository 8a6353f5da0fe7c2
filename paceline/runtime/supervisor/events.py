"""What the thread that conducts a run is told by others."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.live.party import Party


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    who: Party
    cause: str
    details: str
    rank: int  # how close to the root: 0 a process that died, 1 an error of its own, 2 the loss of another


@dataclass(frozen=True, slots=True)
class Started:
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """`incarnation` of it has come or, `lost`, is over."""

    who: Party
    incarnation: int
    line: str
    lost: bool


@dataclass(frozen=True, slots=True)
class StatusLine:
    """To be shown, and no more than that."""

    line: str


@dataclass(frozen=True, slots=True)
class Grow:
    """One more worker is wanted."""


@dataclass(frozen=True, slots=True)
class Finished:
    pass


@dataclass(frozen=True, slots=True)
class Interrupted:
    signal: str


@dataclass(frozen=True, slots=True)
class Taken:
    """All hosts are taken away, which is as SIGTERM; `why`, to be shown."""

    why: str
