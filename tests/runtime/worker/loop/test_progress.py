"""What a worker counts of itself, from its first step or from where an earlier incarnation of the run was."""

from __future__ import annotations

from paceline.core.coordination.control_messages import Progress
from paceline.live.node.timing import Times
from paceline.runtime.worker.loop.progress import ProgressCounters


def told(counters: ProgressCounters, times: Times | None = None) -> Progress:
    return counters.progress(
        times or Times(), traffic=(10, 20), shared=(3, 4), seconds_at_batch=0.5, seconds_in_loop=0.7
    )


def test_steps_samples_and_seconds_add_up() -> None:
    counters = ProgressCounters()
    counters.add(32, 0.25)
    counters.add(8, 0.5)
    counters.exchanges += 1
    found = told(counters)
    assert (found.steps, found.samples, found.exchanges, found.seconds_computing) == (2, 40, 1, 0.75)
    assert (found.bytes_up, found.bytes_down, found.bytes_shared) == (10, 20, 7)
    assert (found.steps_before, found.samples_before) == (0, 0)


def test_what_was_told_counts_as_reported_and_what_came_since_does_not() -> None:
    counters = ProgressCounters()
    counters.add(32, 0.1)
    assert counters.reported == 0
    told(counters)
    counters.add(32, 0.1)
    assert (counters.reported, counters.samples) == (32, 64)


def test_what_an_earlier_incarnation_did_is_counted_and_told_apart() -> None:
    counters = ProgressCounters()
    counters.resume(steps=100, samples=3200)
    assert counters.reported == 3200  # the coordinator knows them from the checkpoint
    counters.add(32, 0.1)
    found = told(counters)
    assert (found.steps, found.samples) == (101, 3232)
    assert (found.steps_before, found.samples_before) == (100, 3200)
    assert found.seconds_computing == 0.1
