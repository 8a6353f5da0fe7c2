"""What a supervisor hears of the ends of processes: causes are types, whatever their texts say."""

from __future__ import annotations

import queue

from paceline.core.coordination.party import worker
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.supervisor.events import EventQueue, StatusLine


def test_the_ends_of_processes_come_before_what_was_told_earlier() -> None:
    ended: queue.SimpleQueue[ProcessEnded] = queue.SimpleQueue()
    events = EventQueue(ended)
    events.put(StatusLine("earlier"))
    ended.put(ProcessEnded(who=worker(1), why=""))
    assert [events.next(0.0) for _ in range(3)] == [
        ProcessEnded(who=worker(1), why=""),
        StatusLine("earlier"),
        None,
    ]
