"""The driver itself, with schemes made up to try every effect."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from benchmarks.sim_scale import calls_per_event
from paceline.core.effects import SERVERS, Call, Compute, Effect, Reply, Tell, Train
from paceline.core.errors import ConfigError
from paceline.core.role import Role
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation, UniformSeconds
from tests.sim.made_up import Got, Note, scheme_of, simulate


class Idle(Role):
    pass


def test_steps_are_counted_when_they_are_done() -> None:
    class Trainer(Got):
        def run(self) -> Generator[Effect, Any, None]:
            self.got.append((yield Train(self.w, 3)))
            self.got.append((yield Compute(self.w)))

    sim = simulate(scheme_of(Trainer), servers=0)
    assert sim.run(until=2.9).steps == [0]
    assert sim.run().steps == [4]
    trained, computed = sim.worker(0).got
    assert (trained.samples, trained.seconds, computed.samples) == (3, 3.0, 1)
    assert trained.x == pytest.approx(np.arange(6.0) * 0.9**3)


def test_after_a_restart_answers_to_the_earlier_life_are_lost_and_later_ones_arrive() -> None:
    class Patient(Role):
        """Answers every second question."""

        asked = 0

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            self.asked += 1
            if self.asked == 2:
                yield Reply(src, Note(text="at last"))

    class Caller(Got):
        def run(self) -> Generator[Effect, Any, None]:
            self.got.append((yield Call(SERVERS, Note(text="?"))).text)

    sim = simulate(scheme_of(Caller, Patient), watched=False).run(until=0.3)
    sim.restart(0)
    assert sim.run().worker(0).got == ["at last"]


def test_a_worker_that_starts_anew_ends_its_step_first_and_drops_the_result() -> None:
    class Trainer(Got):
        def run(self) -> Generator[Effect, Any, None]:
            self.got.append("begins")
            self.got.append((yield Train(self.w, 3)).samples)

    sim = simulate(scheme_of(Trainer), servers=0).run(until=2.0)
    sim.incarnations[0].start_anew()
    assert sim.run(until=2.9).worker(0).got == ["begins"], "nothing is broken off"
    assert sim.run().worker(0).got == ["begins", "begins", 3]
    assert (sim.now, sim.steps) == (6.0, [6])


def test_a_scheme_that_cannot_run_here_is_refused_before_anything_happens() -> None:
    with pytest.raises(ConfigError, match="give --servers 1 or more"):
        simulate(make("asp", {}), servers=0)
    with pytest.raises(ValueError, match="7 servers cannot share 6 parameters: give --servers 6 or less"):
        simulate(make("asp", {}), servers=7)


def test_a_run_may_be_watched_and_continued() -> None:
    sim = simulate(make("asp", {}), workers=2, w0=Ghost(10))
    sim.run(max_events=10)
    assert sim.events == 10
    sim.run(stop=lambda sim: sim.steps[0] >= 5)
    assert sim.steps[0] == 5
    before = sim.now
    assert sim.run(until=before + 10).now <= before + 10
    assert sim.model().nbytes == 40


@pytest.mark.parametrize("name", ["bsp", "asp", "ssp", "gsp", "esync", "diloco"])
def test_what_an_event_costs_does_not_grow_with_the_workers(name: str) -> None:
    """Counted in calls of functions, which do not depend on how busy the machine is."""
    assert calls(name, 1024) < 1.1 * calls(name, 32)


@pytest.mark.parametrize("name", ["bsp", "asp", "ssp", "gsp", "esync", "diloco"])
def test_an_event_takes_at_most_forty_calls(name: str) -> None:
    """Also under diloco, whose workers make 20 local steps between two exchanges: they are drawn in one call."""
    assert calls(name, 64) <= 40


def calls(name: str, workers: int) -> float:
    work = LocalSteps(UniformSeconds(1.0, 4.0))
    sim = Simulation(make(name, {}), Ghost(100), work, workers=workers, watched=False)
    sim.run(max_events=2 * workers)
    return calls_per_event(sim, 6 * workers)


def test_a_hundred_thousand_events_take_seconds_with_a_thousand_workers() -> None:
    """A coarse guard: it is well over 100,000 events a second on a quiet machine."""
    work = LocalSteps(lambda rank, rng: rng.uniform(1, 4))
    sim = Simulation(make("bsp", {}), Ghost(10**9), work, workers=1000, watched=False)
    begin = time.process_time()
    sim.run(max_events=50_000)
    assert time.process_time() - begin < 5
