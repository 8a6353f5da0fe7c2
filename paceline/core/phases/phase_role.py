"""This role changes its inner role with the phase of the run; `paceline.schemes.hybrid` is made of such roles."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from paceline.core.effects import Reply, Tell
from paceline.core.role import Phased, Role, RoleContext
from paceline.core.scheme import Scheme


class Inner(Role):
    """Passes everything on to `inner`, the role of the present phase; `scheme.schemes` has the scheme of each phase."""

    transient: ClassVar[tuple[str, ...]] = ("phase", "inner", "left")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        self.phase, self.inner = (
            0,
            Role(scheme, place),
        )  # there already, because Role.__init__ sets `w`, which is inner's
        self.left: set[int] = set()
        super().__init__(scheme, place)
        self.begin(0.0, 0, place.w)

    def box(self, scheme: Scheme) -> type[Role] | None:
        """Returns this party's role class in `scheme`; None if the scheme has no such party."""
        raise NotImplementedError

    def begin(self, now: float, phase: int, w: Any) -> list[Tell | Reply]:
        """Begins `phase` with the weights `w`.

        The new role is told who has left; returns what it sends because of that.
        """
        own = self.scheme.schemes[phase]
        self.phase = phase
        if isinstance(self.place.update, Phased):
            self.place.update.enter_phase(phase)
        self.inner = (self.box(own) or Role)(own, dataclasses.replace(self.place, w=w))
        self.inner.keeps_w = True
        return [effect for rank in sorted(self.left) for effect in self.inner.on_worker_left(now, rank)]

    @property
    def updates_alone(self) -> bool:  # type: ignore[override]
        """Returns what the present role says."""
        return self.inner.updates_alone

    @property
    def w(self) -> Any:
        return self.inner.w

    @w.setter
    def w(self, w: Any) -> None:
        self.inner.w = w

    def model(self) -> tuple[Any, float]:
        return self.inner.model()

    def samples_waiting(self) -> int:
        return self.inner.samples_waiting()

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        yield from self.inner.on(now, src, message)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Tells the present role; later ones are made without that worker."""
        self.left.add(rank)
        yield from self.inner.on_worker_left(now, rank)

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Tells the present role; later ones are made with that worker."""
        self.left.discard(rank)
        yield from self.inner.on_worker_joined(now, rank)

    def on_refused(self, now: float, rank: int, message: Any) -> Iterator[Tell | Reply]:
        yield from self.inner.on_refused(now, rank, message)

    def leave(self, now: float) -> Iterator[Tell | Reply]:
        yield from self.inner.leave(now)
