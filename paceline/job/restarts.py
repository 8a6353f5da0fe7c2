"""How often a lost worker is started again, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.live.party import Party

SHORT_SECONDS = 5.0
"""A life that is over so soon makes the pause before the next one longer."""
PAUSE_SECONDS_MAX = 30.0


@dataclass(slots=True)
class _Lives:
    began: float = -math.inf  # of the first one nobody asks
    short: int = 0  # of the latest ones, without a longer one between
    again: int = 0
    due: float | None = None


class Restarts:
    """Each worker is started again `most` times: at once, but for one whose lives are short."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lives: dict[Party, _Lives] = {}

    def ended(self, now: float, who: Party) -> str:
        """Its process has ended; why it is not started again, or nothing."""
        lives = self._lives.setdefault(who, _Lives())
        if lives.again >= self._most:
            return f"{who} is not started again: --restarts {self._most}"
        lives.short = lives.short + 1 if now - lives.began < SHORT_SECONDS else 0
        lives.due = now + (min(PAUSE_SECONDS_MAX, 2.0 ** (lives.short - 1)) if lives.short else 0.0)
        return ""

    def due(self, now: float) -> list[Party]:
        """Who is to be started now."""
        found = []
        for who, lives in self._lives.items():
            if lives.due is not None and lives.due <= now:
                lives.again, lives.began, lives.due = lives.again + 1, now, None
                found.append(who)
        return found
