"""Who takes part in a simulation, and what they wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from random import Random
from typing import Any

from paceline.core.effects import Effect, Ticket
from paceline.core.role import Role
from paceline.sim.network import Card


class Party:
    """One role at its place: its network card, its clock, and the Calls it has not answered yet.

    `skew_s` is what this party's clock shows at virtual time 0.
    """

    __slots__ = ("card", "here", "name", "open", "role", "skew_s")

    def __init__(self, name: str, role: Role, card: Card, skew_s: float) -> None:
        self.name = name
        self.role = role
        self.card = card
        self.skew_s = skew_s
        self.here = True
        self.open: dict[int, deque[tuple[Errand, int]]] = {}  # by caller, oldest first

    def admit(self, errand: Errand, index: int) -> None:
        """Open a Call. What an earlier life of the caller still waited for will never be asked for again."""
        calls = self.open.setdefault(errand.life.rank, deque())
        if calls and calls[0][0].life is not errand.life:
            calls.clear()
        calls.append((errand, index))


class Life:
    """One incarnation of a worker: its running generator, until it ends, leaves or is restarted."""

    __slots__ = ("alive", "awaited", "blocked_at", "generator", "incarnation", "party", "rank", "rng")

    def __init__(
        self, rank: int, incarnation: int, party: Party, generator: Generator[Effect, Any, None], rng: Random
    ) -> None:
        self.rank = rank
        self.incarnation = incarnation
        self.party = party
        self.generator = generator
        self.rng = rng
        self.alive = True
        self.awaited: Errand | None = None
        self.blocked_at = 0.0

    def end(self) -> None:
        self.alive = False
        self.generator.close()


class Errand(Ticket):
    """A Call or Mean under way: the answers that came, one of each shard. `members` take part in the Mean."""

    __slots__ = ("done", "error", "life", "members", "missing", "parts", "value")

    def __init__(self, life: Life, answers: int, members: int = 1) -> None:
        self.life = life
        self.members = members
        self.parts: list[Any] = [None] * answers
        self.missing = answers
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None
