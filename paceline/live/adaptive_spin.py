"""Polls for a short time before a thread sleeps, while a core is idle and polling finds what it polls for.

A thread that sleeps is woken after some 20 microseconds, on a core whose caches have gone cold. A worker and a server
that exchange 0.1 MB sleep once each, and that takes half of the time (docs/benchmarks.md).

    before a wait                                            then                          next wait
    something is there already                               nothing is spent              the same
    the run has more workers and servers here than cores     the thread sleeps at once     the same
    more tasks want to run than there are cores              the thread sleeps at once     the same
    after a spin that found nothing: 1, 3, 7, ... 255 waits  the thread sleeps at once     one less to skip
    any other                                                polls for SPIN_SECONDS        found: the same; else sleeps

Before each look the thread gives way. When it has just sent a message, Linux likes to wake the receiver on its core,
since the sender usually sleeps next.

Where the other side runs on this core whenever this thread gives way, both take turns on one core while another one is
idle. After SHARED_MAX such waits in a row the thread moves to another core. Both then stay where they are, since Linux
wakes a thread where it ran last if that core is idle.

So a wait that is always longer, such as that for a slow worker, costs one spin in 256 waits. Linux says how many tasks
want to run; elsewhere nobody spins.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from paceline.live.host_info import cores

T = TypeVar("T")

SPIN_SECONDS = 1e-3
"""A server that polls takes 0.1 ms to check a small gradient, make the update and answer; one that has slept for some
milliseconds takes 0.5 ms. With 0.25 ms half of the exchanges failed to leave the slow way (docs/benchmarks.md).
"""
SKIPPED_MAX = 255
"""Waits without a spin after many that found nothing."""
COUNTED_FOR_SECONDS = 0.01
"""Time between two counts of the tasks that want to run; one takes 10 microseconds."""
BUSY_FOR_SECONDS = 0.5e-3
"""Time until the next count after one that found no idle core, twice as long after each further one. A task that ran
for a moment, such as the one that asked for the exchanges, would else cost all those of the next 10 ms their spins.
"""
SHARED_SECONDS = 20e-6
"""A look that took so long, and found something, has let another thread run; one that has not takes 2 microseconds."""
SHARED_MAX = 3
"""Waits in a row that ended so, before the thread moves; each other wait begins the row anew."""


_computing = [sys.maxsize]
"""Processes of the run on this host that compute or make updates; until they are known nobody polls."""
_PROCESSOR = 36
"""Field of a thread's stat, after its name, that has the number of its core (proc(5))."""
_spun = [0.0]
"""Seconds that all threads of this process have polled in vain or until something came."""


def share_host(processes: int) -> None:
    """Notes how many workers and servers are on this host. With more of them than cores nobody polls: a thread that
    gives way to another one has to wait until that has had its turn, some milliseconds.
    """
    _computing[0] = processes


def working_seconds() -> float:
    """Returns the processor seconds of this process without those in which its threads polled.

    Predictions from a recorded run count work; polling is a wait, whichever core it keeps busy.
    """
    return time.process_time() - _spun[0]


def _runnable_tasks() -> int | None:
    """Returns how many tasks of the machine run or wait for a core; None where the system does not say."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(file.read(100).split()[3].partition(b"/")[0])
    except (OSError, ValueError, IndexError):
        return None


def leave_core() -> None:
    """Moves this thread to another core of those that it may use; it may use the same ones afterwards."""
    try:
        with open("/proc/thread-self/stat", "rb", buffering=0) as file:
            here = int(file.read(1000).rpartition(b")")[2].split()[_PROCESSOR])
        allowed = os.sched_getaffinity(0)
        if others := allowed - {here}:
            os.sched_setaffinity(0, others)
            os.sched_setaffinity(0, allowed)
    except (OSError, ValueError, IndexError, AttributeError):  # not Linux, or not allowed
        return


class AdaptiveSpin:
    """Serves one thread."""

    def __init__(
        self,
        *,
        runnable: Callable[[], int | None] = _runnable_tasks,
        give_way: Callable[[], object] = getattr(os, "sched_yield", lambda: None),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
        move: Callable[[], object] = leave_core,
    ) -> None:
        """`runnable`: counts the tasks that run or want to, this thread included. `clock` returns seconds.

        give_way: lets another task run that waits for the core of this thread. move: takes it to another core.
        """
        self._runnable, self._give_way, self._clock, self._move = runnable, give_way, clock, move
        self._shared = 0  # waits in a row that the other side ended on this core
        self._cores = cores()
        self._count_at = float("-inf")
        self._busy_for = BUSY_FOR_SECONDS
        self._idle_core = False
        self._penalty = self._skipped = 0

    def look(self, poll: Callable[[], Sequence[T]], seconds: float) -> Sequence[T]:
        """Calls `poll`, which must not wait, until it finds something, for `seconds` or SPIN_SECONDS at most.

        Returns what it found; nothing means that the thread should sleep.
        """
        if self._skipped:
            self._skipped -= 1
            return ()
        began = self._clock()
        if not self._may_spin(began):
            return ()
        found = poll()
        if found:
            return found
        before = now = began
        end = began + min(seconds, SPIN_SECONDS)
        while not found and now < end:
            self._give_way()
            before = now
            found, now = poll(), self._clock()
        _spun[0] += now - began
        self._shared = self._shared + 1 if found and now - before > SHARED_SECONDS else 0
        if self._shared == SHARED_MAX:
            self._shared = 0
            self._move()
        self._penalty = 0 if found else min(2 * self._penalty + 1, SKIPPED_MAX)
        self._skipped = self._penalty
        return found

    def _may_spin(self, now: float) -> bool:
        """Returns True if no other task wants the core of this thread, as far as was counted lately."""
        if _computing[0] > self._cores:
            return False
        if now >= self._count_at:
            wanted = self._runnable() if self._cores > 1 else None
            self._idle_core = wanted is not None and wanted <= self._cores
            if self._idle_core:
                self._count_at, self._busy_for = now + COUNTED_FOR_SECONDS, BUSY_FOR_SECONDS
            else:
                self._count_at = now + self._busy_for
                self._busy_for = min(2 * self._busy_for, COUNTED_FOR_SECONDS)
        return self._idle_core
