"""Every number that a scheme may be given, at the ends of its range and beyond: it runs, or is refused in one line."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.scheme import Scheme, limits_of, lookup, make, names, types_of
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation, uniform
from paceline.sim.cluster.model import Cluster
from paceline.sim.fuzzing.random_parameters import schemes_of

LARGE = {int: 2_000, float: 1e6}


def values(name: str, key: str) -> Iterator[Any]:
    """The lowest, the highest, those just inside and outside, and large ones where there is no end."""
    limits, kind = limits_of(lookup(name))[key], types_of(lookup(name))[key]
    for end, out in ((limits.low, -1), (limits.high, 1)):
        if math.isinf(end):
            yield from (out * LARGE[kind], out)
        elif kind is int:
            yield from (int(end) + out, int(end), int(end) - out)
        else:
            yield from (math.nextafter(end, out * math.inf), end, math.nextafter(end, -out * math.inf))
    yield from (0, 1)
    if kind is float:
        yield from (math.nan, math.inf, sys.float_info.min)


NUMBERS = [(name, key) for name in names() for key, kind in types_of(lookup(name)).items() if kind in (int, float)]


def problem(name: str, parameters: dict[str, Any], cluster: Cluster) -> str:
    """Run a little of it; the line by which it is refused, or nothing."""
    try:
        work = LocalSteps(lambda rank, rng: 1.0 + rank % 2, samples=lambda rank: 4)
        sim = Simulation(make(name, parameters), Ghost(6), work, cluster=cluster, watched=False)
        sim.run(until=30.0, max_events=400)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "key"), NUMBERS, ids=[f"{name}.{key}" for name, key in NUMBERS])
def test_a_number_at_the_end_of_its_range_runs_or_is_refused_in_one_line(name: str, key: str) -> None:
    limits = limits_of(lookup(name))[key]
    for value in values(name, key):
        for workers, servers in ((1, 1), (3, 1), (4, 0), (3, 2)):
            try:
                said = problem(name, {key: value}, uniform(workers=workers, servers=servers))
            except (OverflowError, ValueError) as error:
                raise AssertionError(f"{name}.{key} = {value!r} on {workers}+{servers}") from error
            assert "\n" not in said
            if not limits.low <= value <= limits.high:
                assert said, f"{name}.{key} = {value!r} is out of its range"


@pytest.mark.parametrize("name", names())
def test_a_server_holds_one_parameter_at_least(name: str) -> None:
    try:
        lookup(name)().check(3, 8)
    except ConfigError:
        return
    if lookup(name)().server(8) is None:
        return
    with pytest.raises(ConfigError, match="8 servers cannot share 3 parameters: give --servers 3 or less"):
        Simulation(make(name, {}), Ghost(3), LocalSteps(lambda rank, rng: 1.0), workers=3, servers=8)


def test_no_seed_draws_phases_that_hybrid_refuses() -> None:
    for seed in range(600):
        (scheme,) = schemes_of(seed, ["hybrid"])
        refused = [servers for servers in (0, 1) if said_of(scheme, servers)]
        assert len(refused) < 2, scheme


def said_of(scheme: Scheme, servers: int) -> str:
    """Why the scheme refuses four workers and so many servers; "" where it takes them."""
    try:
        scheme.check(4, servers)
    except ConfigError as error:
        return str(error)
    return ""
