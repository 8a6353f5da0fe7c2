"""Models of what a step takes."""

from __future__ import annotations

import math
import statistics

import pytest

from paceline.sim.cluster.model import Bursts, Device
from paceline.sim.cluster.step_times import Speed, speed_of


def steps_of(device: Device, count: int, reference_s: float = 0.5, seed: str = "0") -> list[float]:
    """Seconds of `count` steps one after the other."""
    speed, now, taken = Speed(device, reference_s, seed), 0.0, []
    for _ in range(count):
        taken.append(speed.seconds(now, reference_s, 1))
        now += taken[-1]
    return taken


def test_a_device_like_the_reference_takes_what_the_work_says() -> None:
    assert speed_of(Device(), 0.5, "0") is None


def test_a_factor_and_seconds_outright_set_the_mean() -> None:
    assert steps_of(Device(factor=3.0), 2) == [1.5, 1.5]
    assert steps_of(Device(seconds=0.2), 2) == pytest.approx([0.2, 0.2])


def test_work_of_another_size_takes_time_in_proportion() -> None:
    assert Speed(Device(seconds=0.2), 0.5, "0").seconds(0.0, 4 * 0.5 * 2, 4) == pytest.approx(4 * 0.2 * 2)


def test_jitter_is_log_normal_with_mean_one() -> None:
    logs = [math.log(s / 0.5) for s in steps_of(Device(jitter=0.3), 4000)]
    assert statistics.stdev(logs) == pytest.approx(0.3, rel=0.05)
    assert statistics.mean(math.exp(x) for x in logs) == pytest.approx(1.0, rel=0.03)


def test_draws_depend_on_the_seed_alone() -> None:
    assert steps_of(Device(jitter=0.3), 50) == steps_of(Device(jitter=0.3), 50)
    assert steps_of(Device(jitter=0.3), 50) != steps_of(Device(jitter=0.3), 50, seed="1")


def test_drift_makes_steps_longer() -> None:
    speed = Speed(Device(drift_per_hour=0.5), 1.0, "0")
    assert speed.seconds(0.0, 1.0, 1) == 1.0
    assert speed.seconds(7200.0, 1.0, 1) == pytest.approx(2.0)


def test_a_recorded_trace_is_played_again_and_again() -> None:
    taken = steps_of(Device(trace=(1.0, 2.0, 4.0)), 9)
    assert sorted(taken[:3]) == pytest.approx([1.0, 2.0, 4.0])
    assert taken[:3] == taken[3:6] == taken[6:]
    assert Speed(Device(trace=(1.0, 2.0, 4.0)), 0.5, "0").seconds(0.0, 1.5, 3) == pytest.approx(7.0)


def test_a_tenant_slows_what_falls_into_his_bursts_and_nothing_else() -> None:
    device = Device(bursts=Bursts(every_s=100.0, for_s=50.0, factor=3.0))
    taken = steps_of(device, 20_000)
    assert min(taken) == pytest.approx(0.5)
    assert max(taken) == pytest.approx(1.5)
    # Work is done at full speed in two thirds of the time, at a third of it in the rest.
    assert sum(taken) / (20_000 * 0.5) == pytest.approx(1 / (2 / 3 + 1 / 9), rel=0.1)


def test_one_long_piece_of_work_takes_as_long_as_its_parts() -> None:
    device = Device(bursts=Bursts(every_s=10.0, for_s=5.0, factor=3.0))
    assert Speed(device, 0.5, "0").seconds(0.0, 500.0, 1000) == pytest.approx(sum(steps_of(device, 1000)))
