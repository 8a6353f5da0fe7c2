"""A clock that drifts and jumps, and when it shows a time."""

from __future__ import annotations

from random import Random

from paceline.sim.kernel.host_clock import TRUE, HostClock


def test_a_true_clock_shows_virtual_time_to_the_last_bit() -> None:
    for now in (0.0, 0.1, 1 / 3, 12345.678):
        assert TRUE.reads(now) == now
        assert TRUE.shows(now + 0.25) == now + 0.25


def test_it_gains_and_jumps_ahead() -> None:
    clock = HostClock(0.5, ((2.0, 10.0),))
    assert [clock.reads(now) for now in (0.0, 1.0, 2.0, 4.0)] == [0.0, 1.5, 13.0, 16.0]


def test_what_a_jump_has_passed_is_shown_when_it_jumps() -> None:
    clock = HostClock(0.0, ((2.0, 10.0), (3.0, 1.0)))
    assert [clock.shows(reading) for reading in (1.5, 2.0, 7.0, 12.0, 12.5, 13.5, 14.0, 15.0)] == [
        *(1.5, 2.0, 2.0, 2.0, 2.5, 3.0, 3.0, 4.0),
    ]


def test_before_it_shows_a_time_it_shows_less() -> None:
    random = Random("clocks")
    for _ in range(200):
        jumps = tuple(sorted((random.uniform(0, 20), random.uniform(0, 30)) for _ in range(random.randrange(4))))
        clock = HostClock(random.choice((0.0, 0.02, -0.02)), jumps)
        at = clock.shows(reading := random.uniform(0, 60))
        assert clock.reads(at) >= reading - 1e-9
        assert clock.reads(at - 1e-6) < reading
