"""The parties of a run are `worker 3`, `server 0`, `coordinator`, `evaluator`."""

from __future__ import annotations

import functools
from typing import NamedTuple

KINDS = ("worker", "server", "coordinator", "evaluator")


class Party(NamedTuple):  # a tuple, whose hash costs no call of Python: every message is looked up by its party
    """Names a party: its kind, and its number among those of that kind."""

    kind: str
    index: int = 0  # type: ignore[assignment]  # nobody looks for the place of something in a party

    def __str__(self) -> str:
        return f"{self.kind} {self.index}" if self.kind in ("worker", "server") else self.kind

    @classmethod
    def parse(cls, text: str) -> Party:
        """Does the inverse of `str`. Raises ValueError."""
        kind, _, index = text.partition(" ")
        if kind not in KINDS:
            raise ValueError(f"{text!r} is not a party")
        return cls(kind, int(index or 0))


@functools.lru_cache(1 << 12)  # every answer asks for one
def worker(rank: int) -> Party:
    return Party("worker", rank)


def server(shard: int) -> Party:
    return Party("server", shard)


COORDINATOR = Party("coordinator")
EVALUATOR = Party("evaluator")
