"""What virtual workers have done, read off the records of their trace."""

from __future__ import annotations

from typing import Any

from paceline.core.trace import Evaluated, Span
from paceline.runtime.simulated.counters import Meters


def span(rank: int, activity: str, seconds: float, **more: Any) -> Span:
    return Span(at=1.0, rank=rank, activity=activity, seconds=seconds, **more)


def test_each_worker_has_sums_of_its_own_and_samples_have_a_total() -> None:
    meters = Meters(2)
    for record in (
        span(0, "computing", 0.5, steps=2, samples=64),
        span(0, "waiting", 0.25),
        span(1, "computing", 1.0, steps=1, samples=32),
        span(1, "communicating", 0.125),
        span(0, "computing", 0.5, steps=1, samples=32),
    ):
        meters.record(record)
    first, second = meters.of
    assert (first.steps, first.samples, first.computing, first.waiting, first.communicating) == (3, 96, 1.0, 0.25, 0.0)
    assert (second.steps, second.samples, second.communicating) == (1, 32, 0.125)
    assert meters.total == 128


def test_whoever_asks_hears_of_steps_as_they_are_done_and_of_nothing_else() -> None:
    heard: list[tuple[int, int]] = []
    meters = Meters(2)
    meters.on_steps = lambda rank, steps: heard.append((rank, steps))
    meters.record(span(1, "computing", 0.5, steps=2, samples=64))
    meters.record(span(1, "waiting", 0.5))
    meters.record(Evaluated(at=1.0, samples=64, accuracy=0.5, loss=1.0, seconds=0.1))
    meters.record(span(1, "computing", 0.5, steps=1, samples=32))
    assert heard == [(1, 2), (1, 3)]
