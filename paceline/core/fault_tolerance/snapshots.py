"""Snapshots of all servers at one version: when one is taken, what is in it, which one is kept.

    keeper      input                                          then                                       next
    IDLE        `every_s` after the last one; at once at first  `begin`: Capture to all servers            TAKING
    IDLE        the same, while one is held (`hold`)           asked again after HELD_SECONDS             IDLE
    TAKING      a state of this capture                        kept                                       TAKING
    TAKING      the last one                                   it is the newest; the former one is freed  IDLE
    TAKING      a state of another capture                     ignored: both together never existed       TAKING
    TAKING      `hold`: a server is replaced                   dropped                                    IDLE

    server      input                                          then
                Capture(version, number) (`want`)              what was kept for another one is dropped
                a slice has reached that version (`keeps`)     it is kept, before any further update
                nobody trains any more (`end`)                 what is missing is kept as it is
                all slices are kept (`complete`)               their state is shown, or sent

The version is AHEAD of the newest of all servers, so that each hears of it before it gets there. The first one is of
now: until it is complete a lost server ends the run. Live runs drive this by `runtime/server/snapshot_store.py` and
`runtime/checkpointing/slice_capture.py`, simulated ones by `sim/faults/servers/snapshots.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State")

AHEAD = 2
"""Versions before what is asked for is kept: in lock-step no server is further than one from another."""
FORGET = -1
"""Stands in place of a version: nothing is wanted, and what was kept is dropped."""
HELD_SECONDS = 0.1
"""Seconds between two looks whether the servers are all in place again."""


class WantedVersion(NamedTuple):
    """Names a capture: the version of every slice, and the number that tells it from other captures."""

    version: int
    number: int


class SnapshotRounds(Generic[State]):
    """Decides for the keeper of one run's snapshots.

    newest   the states of the newest complete snapshot, by slice; None before the first
    held     servers are restored from the newest one: it stays, and no other is taken
    """

    def __init__(self, every_s: float) -> None:
        self.newest: dict[int, State] | None = None
        self.held = False
        self._every_s, self._number = every_s, 0
        self._missing: set[int] | None = None  # slices of the snapshot that is being taken; None while none is
        self._coming: dict[int, State] = {}
        self._refused = False

    @property
    def taking(self) -> bool:
        return self._missing is not None

    @property
    def wait_s(self) -> float:
        """Returns the seconds from the end of a snapshot, or from a refusal, until the next one is to begin."""
        return HELD_SECONDS if self._refused else self._every_s

    def may_begin(self) -> bool:
        """Returns True if a snapshot may begin now."""
        self._refused = self.held
        return not self.held

    def begin(self, slices: Collection[int], newest_version: int) -> WantedVersion:
        """Begins a snapshot of `slices`, the furthest of which is at `newest_version`; returns what to ask for."""
        self._number += 1
        self._missing, self._coming = set(slices), {}
        return WantedVersion(newest_version + (AHEAD if self.newest else 0), self._number)

    def arrived(self, number: int, slice: int, state: State) -> bool:
        """Takes the state of a slice, of capture `number`; returns True if that completes the snapshot."""
        if self._missing is None or number != self._number:
            return False
        self._missing.discard(slice)
        self._coming[slice] = state
        if self._missing:
            return False
        self.newest, self._missing = self._coming, None
        return True

    def drop(self) -> None:
        """Drops the snapshot that is being taken: a server is lost, or has part of it no more."""
        self._missing, self._coming = None, {}

    def hold(self) -> None:
        """Keeps the newest one, and takes no other until `release`."""
        self.held = True
        self.drop()

    def release(self) -> None:
        self.held = False


class WantedCapture:
    """Decides for one server with so many slices which of them are kept now, for one purpose.

    number: of the capture that is wanted.
    """

    def __init__(self, slices: int) -> None:
        self._slices, self._version, self.number = slices, FORGET, 0
        self._kept: set[int] = set()
        self._ended = False

    @property
    def wanted(self) -> bool:
        """Returns True if a capture is wanted, kept already or not."""
        return self._version != FORGET

    @property
    def complete(self) -> bool:
        """Returns True if all slices are kept."""
        return len(self._kept) == self._slices

    def want(self, version: int, number: int = 0) -> None:
        """Begins to wait for `version`; FORGET drops what was kept."""
        self._version, self.number = version, number
        self._kept = set()

    def end(self) -> None:
        """Notes that nobody trains any more, so that no further version comes."""
        self._ended = True

    def keeps(self, at: int, version: int | None) -> bool:
        """Returns True if slice `at` is to be kept now, at `version`; None for a slice that counts no versions."""
        if not self.wanted or at in self._kept:
            return False
        if not self._ended and version is not None and version < self._version:
            return False
        self._kept.add(at)
        return True
