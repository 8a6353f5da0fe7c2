"""Decides how often a lost worker, server or evaluator is started again, and when.

party      while training                                        afterwards
worker     --restarts times; at once, or after 1, 2, 4 ... 30 s  never
           if its incarnations last less than SHORT_SECONDS
evaluator  the same, then 5 more after 60, 120, ... s            FINAL_RESTARTS times, at once
server     once it is given up and its process has ended; up to  never
           a limit of incarnations that do not join

A process that was refused, since it speaks another version of the protocol, has neither failed nor taken part. It
counts towards no limit, and the next one follows after 1, 2, 4 ... 30 s, of a server 8 s: its host may have the right
version by then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.core.coordination.party import Party

SHORT_SECONDS = 5.0
"""An incarnation that ends within this time makes the pause before the next one longer."""
PAUSE_SECONDS_MAX = 30.0
"""Seconds before a restart, at most; each end of a short incarnation doubles the pause, and so does each refusal."""
LATER_SECONDS = 60.0
"""Seconds of the first pause once --restarts are used up; each further pause is longer by as much."""
LATE_RESTARTS = 5
"""Restarts of the evaluator while others train, once --restarts are used up; the cause may be over by then."""
FINAL_RESTARTS = 2
"""Restarts of the evaluator once nobody trains any more. The last one only saves: evaluating may be what ended the
others."""


SERVER_PAUSE_SECONDS_MAX = 8.0
"""The same for a server that was refused: the run stands still without it, and waits for a minute only."""


def pause_after(short: int, most: float = PAUSE_SECONDS_MAX) -> float:
    """Returns the seconds before the next start, when so many incarnations in a row were short or refused."""
    return min(most, 2.0 ** (short - 1)) if short else 0.0


@dataclass(slots=True)
class _Starts:
    """Counts the restarts of one worker, or of the evaluator."""

    began: float = -math.inf  # of the first one nobody asks
    short: int = 0  # of the latest ones, without a longer one between
    refused: int = 0  # of the latest ones
    again: int = 0
    due: float | None = None


class Restarts:
    """Restarts each worker and the evaluator `most` times: at once, or after a pause if its incarnations are short."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._incarnations: dict[Party, _Starts] = {}

    def ended(self, now: float, who: Party, *, later: int = 0) -> str:
        """Notes that the process of `who` has ended; returns why it is not started again, or "".

        `later`: how many restarts follow the first ones, each after a longer pause; none where `most` is 0.
        """
        incarnations = self._incarnations.setdefault(who, _Starts())
        incarnations.refused = 0
        if incarnations.again >= self._most:
            if self._most and incarnations.again < self._most + later:
                incarnations.due = now + LATER_SECONDS * (incarnations.again - self._most + 1)
                return ""
            return f"{who} is not started again: --restarts {self._most}"
        incarnations.short = incarnations.short + 1 if now - incarnations.began < SHORT_SECONDS else 0
        incarnations.due = now + pause_after(incarnations.short)
        return ""

    def refused(self, now: float, who: Party) -> str:
        """Notes that the process of `who` was refused for its version; returns why it is not started again, or "".

        The restart that brought it is given back.
        """
        if not self._most:
            return f"{who} is not started again: --restarts 0"
        incarnations = self._incarnations.setdefault(who, _Starts())
        incarnations.again = max(0, incarnations.again - 1)
        incarnations.refused += 1
        incarnations.due = now + pause_after(incarnations.refused)
        return ""

    def pause(self, now: float, who: Party) -> float:
        """Returns the seconds until it is started again; 0 where it is not, or at once."""
        due = self._incarnations[who].due
        return max(0.0, due - now) if due is not None else 0.0

    def times(self) -> list[float]:
        """Returns when those are started that wait for it."""
        return [of.due for of in self._incarnations.values() if of.due is not None]

    def due(self, now: float) -> list[Party]:
        """Returns who is to be started now; they count as started."""
        found = []
        for who, incarnations in self._incarnations.items():
            if incarnations.due is not None and incarnations.due <= now:
                incarnations.again, incarnations.began, incarnations.due = incarnations.again + 1, now, None
                found.append(who)
        return found


class EvaluatorRestarts:
    """Decides about the evaluator's last restarts: nobody waits for it while others train, but at the end one must
    save.

    While training goes on `Restarts` says when it is started again; after that it is at once, FINAL_RESTARTS times.
    """

    def __init__(self) -> None:
        self._is_away = False
        self._final_restarts = 0

    @property
    def exhausted(self) -> bool:
        """Returns True if its last incarnation has begun."""
        return self._final_restarts >= FINAL_RESTARTS

    def ended(self) -> None:
        """Notes that its process has ended."""
        self._is_away = True

    def started(self) -> None:
        """Notes that another one was started."""
        self._is_away = False

    def takes_final_restart(self) -> bool:
        """Returns True if another one is to be started now that nobody trains any more; it counts as started then."""
        if not self._is_away or self.exhausted:
            return False
        self._is_away, self._final_restarts = False, self._final_restarts + 1
        return True


class Replacements:
    """Decides about servers: a lost one is started anew once it is given up and its process has ended.

    Both must have happened, in either order: a successor must not start beside a process that still holds the port,
    nor before the coordinator has put another server in its place. One that never joined is started anew at once, and
    one that was refused after a pause. Incarnations are numbered from 0; at most `most` in a row may fail to join,
    counting the last one that did and none that was refused: how long a run waits for a server, its coordinator says.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._joined: dict[Party, int] = {}  # the latest incarnation that has
        self._given_up: dict[Party, int] = {}
        self._ended: dict[Party, int] = {}  # whose process has, and which is not replaced yet
        self._refused: dict[Party, int] = {}  # how many, since one has joined
        self._due: dict[Party, float] = {}  # when the successor of a refused one is started

    def joined(self, who: Party, incarnation: int) -> None:
        """Notes that an incarnation has joined."""
        self._joined[who] = incarnation
        self._refused.pop(who, None)

    def refused(self, now: float, who: Party) -> None:
        """Notes that the process of `who` was refused for its version and has ended; another one follows later."""
        self._refused[who] = self._refused.get(who, 0) + 1
        self._due[who] = now + pause_after(self._refused[who], SERVER_PAUSE_SECONDS_MAX)

    def times(self) -> list[float]:
        """Returns when those are started that wait for it."""
        return list(self._due.values())

    def due(self, now: float) -> list[Party]:
        """Returns who is to be started now, after a refusal; each counts as started."""
        found = [who for who, at in self._due.items() if at <= now]
        for who in found:
            del self._due[who]
        return found

    def given_up(self, who: Party, incarnation: int) -> bool:
        """Notes that the run goes on without that incarnation; returns True if it is time for the next one."""
        self._given_up[who] = incarnation
        return self._ended.get(who) == incarnation and self._next(who)

    def ended(self, who: Party, incarnation: int) -> bool:
        """Notes that the process of that incarnation has ended; returns True if it is time for the next one."""
        self._ended[who] = incarnation
        return (self._given_up.get(who) == incarnation or self._never_joined(who, incarnation)) and self._next(who)

    def hopeless(self, who: Party, incarnation: int) -> bool:
        """Returns True if a server's last incarnation never joined; the run goes on without a worker."""
        return (
            who.kind == "server"
            and self._never_joined(who, incarnation)
            and incarnation - self._joined.get(who, 0) - self._refused.get(who, 0) + 1 >= self._most
        )

    def _never_joined(self, who: Party, incarnation: int) -> bool:
        """Returns True if this incarnation has ended before it took part."""
        return incarnation > self._joined.get(who, 0)  # the run began with the first

    def _next(self, who: Party) -> bool:
        """Returns True, and forgets the end, so that one end starts one successor."""
        del self._ended[who]  # once only, whatever is still heard of it
        return True
