"""Measures what the process of one party uses: memory, cores, the accelerator, and each of its links."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import torch

from paceline.core.coordination.party import COORDINATOR, Party
from paceline.core.trace import LinkTraffic, Record, ResourceUse
from paceline.engine.accelerators import BusyShare, memory_of

LINKS_MAX = 32
"""Links that one measurement tells, the busiest: under gossip a worker may have one to each other."""
_ORDER = ("server", "worker", "evaluator")


class TrafficCounter(Protocol):
    """Describes a transport, as far as it counts."""

    def traffic_with(self) -> dict[Party, tuple[int, int]]:
        """Returns the bytes sent to and received from each party."""


class Usage:
    """Measures the process of `who` whenever it is called, on the thread that calls it."""

    def __init__(self, who: Party, device: str, transport: TrafficCounter, now: Callable[[], float]) -> None:
        """`now` returns the seconds since training started."""
        self._who, self._transport, self._now = who, transport, now
        self._device = torch.device(device)
        self._resident: Callable[[], int] | None = None
        self._busy: BusyShare | None = None
        self._cpu_s, self._at = _spent_s(), time.monotonic()
        self._bytes = transport.traffic_with()

    def __call__(self) -> Iterator[Record]:
        """Yields what was used since the call before; of links those that had traffic, and one end of each tells it."""
        at, now, cpu_s = self._now(), time.monotonic(), _spent_s()
        seconds = max(1e-9, now - self._at)
        if self._busy is None or self._resident is None:
            self._busy, self._resident = BusyShare(self._device), _resident()
        reserved, total = memory_of(self._device)
        yield ResourceUse(
            at=at,
            party=str(self._who),
            memory_bytes=self._resident(),
            cores=round((cpu_s - self._cpu_s) / seconds, 3),
            device_bytes=reserved,
            device_total_bytes=total,
            device_share=self._busy.now(),
        )
        yield from self._links(at, seconds)
        self._cpu_s, self._at = cpu_s, now

    def _links(self, at: float, seconds: float) -> Iterator[LinkTraffic]:
        """Yields the links with traffic, the busiest first."""
        before, self._bytes = self._bytes, self._transport.traffic_with()
        found = []
        for other, (sent, received) in self._bytes.items():
            old = before.get(other, (0, 0))
            if sent < old[0] or received < old[1]:  # a connection to a later incarnation, which counts from 0
                old = 0, 0
            if tells(self._who, other) and (sent, received) != old:
                found.append((other, sent - old[0], received - old[1]))
        for other, sent, received in sorted(found, key=lambda link: -link[1] - link[2])[:LINKS_MAX]:
            yield LinkTraffic(
                at=at, party=str(self._who), other=str(other), sent=sent, received=received, seconds=round(seconds, 3)
            )


def _spent_s() -> float:
    """Returns the seconds of CPU time that this process has used."""
    spent = os.times()
    return spent.user + spent.system


def _resident() -> Callable[[], int]:
    """Returns a function that returns the bytes of this process that are in memory."""
    import psutil  # a start need not wait for this import

    process = psutil.Process()
    return lambda: int(process.memory_info().rss)


def tells(who: Party, other: Party) -> bool:
    """Returns True if `who` tells the traffic of the link to `other`: each link has one end that does.

    Links to the coordinator carry reports, and are left out.
    """
    if other == COORDINATOR or other.kind not in _ORDER or who.kind not in _ORDER:
        return False
    return (_ORDER.index(other.kind), other.index) < (_ORDER.index(who.kind), who.index)
