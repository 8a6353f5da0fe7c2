"""The cores of one host, shared by all that is ready to run; and the tasks of one process, one after the other.

A scheduler keeps a queue for each core. The n threads of one queue take turns, so each runs at 1/n of the core's
speed. A thread that becomes ready joins the shortest queue, and a core without work takes a thread from the longest.
Queues of one and of two threads stay as they are, so three threads on two cores are not equally fast:

    core 0  A A A A A A|C C C            A, B and C need 6 s each from t = 0, on two cores. B and C share a core:
    core 1  B C B C B C|B B B            A ends at 6, then its core takes C, and both end at 9

Turns are infinitely short here (processor sharing, Kleinrock, "Time-shared Systems: A Theoretical Treatment", 1967).
All threads of a queue run at one speed, so the order in which they end does not change while it lasts, and the
seconds that each was `served` tell when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from paceline.sim.kernel.event_queue import Heap

Act = Callable[[Any, Any, Any], None]
Task = tuple[float, int, Act, Any, Any, Any]
"""Core seconds, threads, and the act that is called with the other three when the task is done."""


class _OpenTask:
    """Holds what is called when all threads of a task are done."""

    __slots__ = ("act", "args", "left")

    def __init__(self, threads: int, act: Act, args: tuple[Any, Any, Any]) -> None:
        self.left, self.act, self.args = threads, act, args


class _Core:
    """Holds the threads that take turns on one core, by what each is served when it ends."""

    __slots__ = ("next_end", "running", "served", "until")

    def __init__(self) -> None:
        self.running: list[tuple[float, int, _OpenTask]] = []
        self.served = self.until = 0.0  # seconds that each thread was given until then
        self.next_end: tuple[float, float] | None = None  # when the next thread ends, as it is on the heap, and served

    def serve(self, now: float) -> None:
        """Brings what each thread was given up to `now`."""
        if self.running:
            self.served += (now - self.until) / len(self.running)
        self.until = now


class HostCores:
    """Runs the tasks of one host. `cores`: how many it has; 0 where no task waits for another one."""

    __slots__ = ("_cores", "_ending", "_heap", "_number")

    def __init__(self, heap: Heap, cores: int = 0) -> None:
        self._heap, self._number = heap, 0
        self._cores = [_Core() for _ in range(cores)]
        self._ending: _Core | None = None  # the core on which a thread has just ended

    def begin(self, now: float, task: Task) -> None:
        """Begins a task at `now`, in virtual seconds."""
        seconds, threads, act, a, b, c = task
        if not self._cores:
            self._heap.put(now + seconds / threads, act, a, b, c)
            return
        begun = _OpenTask(threads, act, (a, b, c))
        for _ in range(threads):
            self._join(now, min(self._cores, key=self._load), seconds / threads, begun)

    def _load(self, core: _Core) -> tuple[int, bool]:
        """Returns how long the queue of a core is; of two equal ones, that where a thread has just ended is shorter."""
        return len(core.running), core is not self._ending

    def _join(self, now: float, core: _Core, seconds: float, task: _OpenTask) -> None:
        """Adds a thread to the queue of a core."""
        core.serve(now)
        self._number += 1
        heappush(core.running, (core.served + seconds, self._number, task))
        self._schedule(now, core)

    def _schedule(self, now: float, core: _Core) -> None:
        """Puts the end of the thread that ends first on the heap, unless it is there."""
        ends = core.running[0][0]
        at = now + max(0.0, ends - core.served) * len(core.running)
        if (at, ends) != core.next_end:
            core.next_end = at, ends
            self._heap.put(at, self._end, core, at, ends)

    def _end(self, core: _Core, at: float, ends: float) -> None:
        """Ends the threads of a core that are done; an event that another one has replaced does nothing."""
        if (at, ends) != core.next_end:
            return
        core.serve(at)
        core.served = max(core.served, ends)  # which a rounding error must not put off for ever
        core.next_end = None
        done = []
        while core.running and core.running[0][0] <= core.served:
            done.append(heappop(core.running)[2])
        if core.running:
            self._schedule(at, core)
        self._ending = core
        for task in done:
            task.left -= 1
            if not task.left:
                task.act(*task.args)
        self._ending = None
        if not core.running:  # what goes on without a pause has stayed
            self._take_from_the_longest(at, core)

    def _take_from_the_longest(self, now: float, core: _Core) -> None:
        """Gives a core without work the thread that joined last among those that share a core."""
        longest = max(self._cores, key=lambda other: len(other.running))
        if len(longest.running) < 2:
            return
        longest.serve(now)
        moved = max(longest.running, key=lambda thread: thread[1])
        longest.running.remove(moved)
        heapify(longest.running)
        longest.next_end = None
        self._schedule(now, longest)
        self._join(now, core, max(0.0, moved[0] - longest.served), moved[2])


class TaskQueue:
    """Runs the tasks of one process on the cores of its host, one at a time, in the order in which they came.

    What the act of a task adds comes before all that waits: a server sends its answer before it takes the next
    message in.
    """

    __slots__ = ("_busy", "_caused", "_cores", "_now", "_waiting")

    def __init__(self, cores: HostCores, now: Callable[[], float]) -> None:
        self._cores, self._now = cores, now
        self._waiting: deque[Task] = deque()
        self._caused: list[Task] | None = None  # by the act that is being called
        self._busy = False

    def add(self, task: Task) -> None:
        """Runs `task` once all before it are done."""
        if self._caused is not None:
            self._caused.append(task)
            return
        self._waiting.append(task)
        if not self._busy:
            self._begin_next()

    def _begin_next(self) -> None:
        """Begins the oldest task."""
        self._busy = True
        seconds, threads, act, a, b, c = self._waiting.popleft()
        self._cores.begin(self._now(), (seconds, threads, self._done, act, (a, b, c), None))

    def _done(self, act: Act, args: tuple[Any, Any, Any], _: None) -> None:
        """Calls the act of a task that is done; the next task begins after that."""
        self._caused = []
        act(*args)
        self._waiting.extendleft(reversed(self._caused))
        self._caused, self._busy = None, False
        if self._waiting:
            self._begin_next()
