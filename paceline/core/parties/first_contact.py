"""Who is let in by the version of the protocol that it speaks, and what a caller does that was not.

    a party that is called                         then
    its caller speaks this version                 the handshake goes on
    its caller speaks another one                  it tells the caller its own version, and closes: `why_refused`

    a party that calls (`CallAttempts`)            then
    the other side closes, and says nothing        CallAgain after 0.1, 0.4 and 1.5 s, then GiveUp
    the other side tells another version           GiveUp at once: calling again would change nothing

All processes of a run have one version: nothing is translated. Magic and version lie at the same place in every
version of a frame (`paceline.live.protocol.frames`), so either side can read which one the other speaks. A process that
gives up ends; `paceline.core.supervisor` says when the next one is tried.
"""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOL_VERSION = 2
"""The version that this code speaks: it grows with every change of a message or a frame."""
AGAIN_SECONDS = (0.1, 0.4, 1.5)
"""Seconds before each further call after one that was closed, as when too many call at once."""
WAY_OUT = "install one version of paceline on all hosts"


def why_refused(theirs: int, mine: int) -> str:
    """Returns why a party of version `mine` refuses one of version `theirs`, with the way out; "" if it does not."""
    if theirs == mine:
        return ""
    return f"the other side speaks protocol version {theirs}, this side {mine}: {WAY_OUT}"


@dataclass(frozen=True, slots=True)
class CallAgain:
    """Calls again after so many seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Calls no more. `other_version`: the other side speaks another version."""

    why: str
    other_version: bool = False


class CallAttempts:
    """Counts the calls of one party to another, until one succeeds or it gives up."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._pauses = list(AGAIN_SECONDS)

    def closed(self, why: str) -> CallAgain | GiveUp:
        """Handles a call that the other side has closed before the handshake was finished."""
        return CallAgain(self._pauses.pop(0)) if self._pauses else GiveUp(why)

    def heard(self, theirs: int) -> GiveUp | None:
        """Handles the version that the other side speaks; returns None where it is the same."""
        why = why_refused(theirs, self._version)
        return GiveUp(why, other_version=True) if why else None
