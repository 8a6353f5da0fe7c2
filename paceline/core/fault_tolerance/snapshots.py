"""Snapshots of all servers at one version: when one is taken, what is in it, which one is kept.

    keeper      input                                          then                                       next
    IDLE        it is `due`: at once at first                  AskVersions: how far are the servers?      IDLE
    IDLE        the same, while one is held (`hold`)           SnapshotPause of HELD_SECONDS              IDLE
    IDLE        their `versions`                               WantedVersion: Capture to all servers      TAKING
    IDLE        the same, while one is held since              SnapshotPause of HELD_SECONDS              IDLE
    TAKING      a state of this capture                        kept                                       TAKING
    TAKING      the last one                                   it is the newest; the former one is freed  IDLE
    TAKING      a state of another capture                     ignored: both together never existed       TAKING
    TAKING      `hold`: a server is replaced                   dropped; SnapshotPause of `every_s`        IDLE
    any         it has `ended`: complete, or a server is lost  dropped; SnapshotPause of `every_s`        IDLE

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

from collections.abc import Collection, Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class AskVersions:
    """Asks all servers for their versions; the keeper gives them to `versions`."""


@dataclass(frozen=True, slots=True)
class SnapshotPause:
    """Lets the keeper wait so many seconds until a snapshot is due again."""

    seconds: float


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

    @property
    def taking(self) -> bool:
        return self._missing is not None

    def due(self) -> AskVersions | SnapshotPause:
        """Returns what to do when a snapshot is due."""
        return SnapshotPause(HELD_SECONDS) if self.held else AskVersions()

    def versions(self, slices: Collection[int], newest: Iterable[int]) -> WantedVersion | SnapshotPause:
        """Begins a snapshot of `slices`, unless a server was lost meanwhile. `newest`: the version of each server."""
        return SnapshotPause(HELD_SECONDS) if self.held else self.begin(slices, max(newest))

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

    def ended(self) -> SnapshotPause:
        """Returns the pause until the next one. What is not complete now is dropped: a server is lost, or has part of
        it no more.
        """
        self._missing, self._coming = None, {}
        return SnapshotPause(self._every_s)

    def hold(self) -> SnapshotPause | None:
        """Keeps the newest one, and takes no other until `release`; returns the pause after one that is dropped."""
        taking, self.held = self.taking, True
        pause = self.ended()
        return pause if taking else None

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
