"""Roles driven by hand: say what arrives and when, see what is answered."""

from __future__ import annotations

from typing import Any

import numpy as np

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import Data, Reply, Tell
from paceline.core.paramserver.gated_server import Pull, Push
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme, make
from paceline.core.trace import Applied, Decided, Record


class ByHand:
    """One role and the records it wrote."""

    def __init__(self, role: type[Role], scheme: Scheme | None, workers: int = 2, **place: Any) -> None:
        self.records: list[Record] = []
        place = {"me": 0, "w": np.zeros(1), "update": lambda w, g, samples: w - g, **place}
        place.setdefault("note", self.records.append)
        self.role = role(scheme, RoleContext(workers=tuple(range(workers)), **place))
        self.now = 0.0

    def on(self, src: int, message: Any, now: float | None = None) -> dict[int, Any]:
        """What each party is answered with."""
        self.now = self.now if now is None else now
        return self._said(list(self.role.on(self.now, src, message)))

    def gone(self, rank: int) -> dict[int, Any]:
        return self._said(list(self.role.on_worker_left(self.now, rank)))

    def came(self, rank: int) -> dict[int, Any]:
        return self._said(list(self.role.on_worker_joined(self.now, rank)))

    def _said(self, effects: list[Tell | Reply]) -> dict[int, Any]:
        assert all(isinstance(effect, Reply) for effect in effects)
        said = {effect.to: effect.message for effect in effects}
        assert len(said) == len(effects), "one question was answered twice"
        return said

    def pull(self, src: int, clock: int = 0) -> dict[int, Any]:
        return self.on(src, Pull(last=clock))

    def push(self, src: int, clock: int, g: float = 1.0, samples: int = 1, data: Data = ()) -> dict[int, Any]:
        return self.on(src, Push(g=np.array([g]), clock=clock, samples=samples, data=data))

    def decisions(self) -> list[tuple[int, str, str]]:
        return [(r.rank, r.verdict, r.reason) for r in self.records if isinstance(r, Decided)]

    def updates(self) -> list[Applied]:
        return [r for r in self.records if isinstance(r, Applied)]


def server(name: str, workers: int = 2, place: dict[str, Any] | None = None, **parameters: Any) -> ByHand:
    """The server of a scheme, after every worker's first Pull."""
    scheme = make(name, parameters)
    assert scheme.Server is not None
    by_hand = ByHand(scheme.Server, scheme, workers, **(place or {}))
    for rank in range(workers):
        assert set(by_hand.pull(rank)) == {rank}
    return by_hand
