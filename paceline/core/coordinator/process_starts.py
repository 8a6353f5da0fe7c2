"""Watches the processes that are started during training, until they say Hello.

    input              then
    started            it is waited for: at most `start_after_s`
    Hello, or its end  it is waited for no more
    too long silent    ProcessUnheard: the driver kills the process, and may start another one

A lost worker is missed by nobody, so nothing else would notice that its next process hangs before it connects: in an
import, on a file system that does not answer, or in what a script does before `paceline.join`. While a run is brought
up everybody waits for everybody, and the driver bounds that by the same number of seconds.
"""

from __future__ import annotations

from paceline.core.coordination.decisions import ProcessUnheard
from paceline.core.coordination.lifecycle import RunContext
from paceline.core.coordination.party import Party


class ProcessStarts:
    """Holds who was started and has not said Hello, on the coordinator's thread.

    Servers are left out: while one is replaced everybody waits for it, with a deadline (`server_recovery.py`).
    """

    def __init__(self, run: RunContext, start_after_s: float) -> None:
        """`start_after_s`: after so many seconds a process that was not heard of is given up."""
        self._run, self._start_after_s = run, start_after_s
        self._waiting: dict[Party, tuple[int, float]] = {}  # incarnation, and when it was started

    def started(self, who: Party, incarnation: int) -> None:
        """Notes that the process of that incarnation was started just now."""
        if self._run.state.training and who.kind != "server":
            self._waiting[who] = incarnation, self._run.now()

    def over(self, who: Party) -> None:
        """Waits for `who` no more: it has said Hello, or its process has ended."""
        self._waiting.pop(who, None)

    def look(self) -> None:
        """Gives up those whose time is over; called several times a second during training."""
        now = self._run.now()
        for who, (incarnation, since) in list(self._waiting.items()):
            if now - since > self._start_after_s:
                del self._waiting[who]
                why = f"{who} has not connected within {self._start_after_s:g} s of its start, and is killed"
                self._run.decide.add(ProcessUnheard(who, incarnation, why))
