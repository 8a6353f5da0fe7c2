"""Schemes made up to try one effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.message import message
from paceline.core.role import Role
from paceline.core.scheme import Scheme
from paceline.sim import LocalSteps, Simulation


@message("test_driver.Note")
class Note:
    text: str


def scheme_of(worker: type[Role], server: type[Role] | None = None, coordinator: type[Role] | None = None) -> Scheme:
    @dataclass(frozen=True, kw_only=True)
    class MadeUp(Scheme):
        Worker = worker
        Server = server
        Coordinator = coordinator

    return MadeUp()


def simulate(scheme: Scheme, workers: int = 1, w0: Any = None, seconds: float = 1.0, **more: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: seconds)
    w0 = np.arange(6.0) if w0 is None else w0
    return Simulation(scheme, w0, work, workers=workers, **{"latency_s": 0.25, "bandwidth_gbps": 1e9, **more})


class Got(Role):
    """Keeps what it got in `self.got`."""

    def __init__(self, scheme: Any, place: Any) -> None:
        super().__init__(scheme, place)
        self.got: list[Any] = []
