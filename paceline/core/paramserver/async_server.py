"""This server waits for nobody: it applies each contribution once, when it arrives, and answers it at once.

It serves schemes whose workers send something else than gradients. For those that send gradients there is
`paceline.core.paramserver.gated_server`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from paceline.core.effects import Reply, Tell
from paceline.core.message import vector_fields
from paceline.core.paramserver.gated_server import Pull
from paceline.core.role import Role, RoleContext
from paceline.core.trace import Applied


class ArrivalServer(Role):
    """Holds one shard. `takes`: the message that carries a contribution; it has a `clock`, from 1, and `samples`."""

    takes: ClassVar[type]
    # Workers count their contributions from 1 in each run, and so does their server.
    transient: ClassVar[tuple[str, ...]] = ("version", "clocks", "seen")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.version = 0
        self.clocks = dict.fromkeys(self.workers, 0)  # contributions applied, by who takes part
        self.seen = dict.fromkeys(self.workers, 0)  # version of what each was answered with

    # ---- what a scheme says ------------------------------------------------------------------------------
    def apply(self, src: int, message: Any) -> float:
        """Moves `w` by the contribution in `message`. Returns the factor it counted with, for the trace."""
        raise NotImplementedError

    def answer(self, src: int, before: Any) -> Any:
        """Returns the message for `src`; `before` is w as it was when its contribution arrived."""
        raise NotImplementedError

    # ---- upon receiving ----------------------------------------------------------------------------------
    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Applies a new contribution and answers at once; a repeat or a Pull is answered and changes nothing."""
        if not isinstance(message, self.takes | Pull):
            yield from super().on(now, src, message)
        if src not in self.clocks:
            return  # it has left; what was still on its way changes nothing
        before = self.w
        # A repeat is answered and changes nothing.
        if not isinstance(message, Pull) and message.clock > self.clocks[src]:
            self.clocks[src] = message.clock
            staleness, refused = self.version - self.seen[src], self._refused(now, src, message)
            self.samples_seen += message.samples
            weight = 0.0 if refused else self.apply(src, message)
            self.version += not refused
            self._explain(now, (src,), message.samples, staleness, weight)
        self.seen[src] = self.version
        yield Reply(src, self.answer(src, before))

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Forgets a worker; nobody waits for it."""
        self.clocks.pop(rank, None)
        if self.gate is not None:
            self.gate.gone(rank)
        yield from ()

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Begins with a newcomer at clock 0: its contributions have nothing to do with those of its
        last incarnation.
        """
        self.clocks[rank] = 0
        if self.gate is not None:
            self.gate.came(rank)
        self.seen[rank] = self.version
        yield from ()

    def _refused(self, now: float, src: int, message: Any) -> bool:
        """Returns True if the gradient check rejects one of the vectors of `message`."""
        gate = self.gate
        if gate is None:
            return False
        return any(gate.push(now, src, getattr(message, name)) is not None for name in vector_fields(self.takes))

    def _explain(self, now: float, ranks: tuple[int, ...], samples: int, staleness: int, weight: float) -> None:
        """Records an update."""
        if self.note:
            self.note(
                Applied(
                    at=now,
                    shard=self.me,
                    ranks=ranks,
                    version=self.version,
                    staleness=staleness,
                    weight=weight,
                    samples=samples,
                )
            )
