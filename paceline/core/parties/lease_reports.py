"""What workers and the first server tell the coordinator about leased samples.

    worker          the scheme asks for work again: nothing of what was handed over is under way (`asks_for_work`)
                    it was started anew, or a server was replaced by its copy: Past
    first server    each contribution is resolved: kept for a moment (`add`), then SamplesResolved, once its copy knows
                    (`queue`, `messages`)
                    asked what of a lost worker waits in an open round: Fenced, behind that

What has been told of a contribution stays true when a server is replaced from its copy: it is in an update, or others
have its samples. So it may not be told before the copy knows it; the worker would send it again.

`paceline.core.coordination.sample_leases` has the coordinator's part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from paceline.core.coordination import control_messages as control
from paceline.core.effects import Data

RESOLVED_MAX = 256
"""Contributions in one message."""


class HandedSamples:
    """Counts what one incarnation of a worker has handed over of its leases.

    answered: samples of its leases, from the first on, of which nothing is under way.
    """

    def __init__(self) -> None:
        self.answered = 0

    def asks_for_work(self, handed: int, *, anew: bool) -> control.Past | None:
        """Notes that the scheme asks for work, when `handed` samples of its leases have been used.

        anew: it was started anew since it last asked, so what was handed over is in the servers, or never will be.
        Returns what to tell the coordinator then.
        """
        self.answered = handed
        return self.past() if anew else None

    def past(self) -> control.Past:
        """Returns which samples will not come any more."""
        return control.Past(handed=self.answered)


class ResolvedContributions:
    """Gathers what became of contributions, for fewer messages. One thread may add while another takes out."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, str, Data]] = deque()
        self._queue: deque[control.SamplesResolved | control.Fenced] = deque()
        self._queued = self._told = 0  # messages so far

    def add(self, rank: int, fate: str, data: Data) -> bool:
        """Adds a contribution of worker `rank`; returns True for the first one, after which a timer is due."""
        self._waiting.append((rank, fate, data))
        # Looked at afterwards: were all taken out in between, nobody would set the timer for this one.
        return len(self._waiting) == 1

    def queue(self, *behind: control.Fenced) -> int:
        """Makes messages of all that was added, and puts them and those `behind` into a queue.

        Returns the number of the last one, up to which `messages` may be told when the copy has the present state.
        """
        before = len(self._queue)
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), RESOLVED_MAX))]
            self._queue.append(control.SamplesResolved(contributions=tuple(some)))
        self._queue.extend(behind)
        self._queued += len(self._queue) - before
        return self._queued

    def forget(self) -> None:
        """Drops what was added and queued, since the server becomes what it was before, or what its copy says."""
        self._waiting.clear()
        self._queue.clear()
        self._told = self._queued

    def messages(self, up_to: int | None = None) -> Iterator[control.SamplesResolved | control.Fenced]:
        """Takes messages to the coordinator out of the queue, up to that number; without one, of all that was added."""
        last = self.queue() if up_to is None else up_to
        while self._told < last:
            self._told += 1
            yield self._queue.popleft()
