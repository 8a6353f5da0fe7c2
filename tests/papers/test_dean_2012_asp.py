"""Dean et al., Large Scale Distributed Deep Networks, NIPS 2012: Downpour SGD with one step between exchanges."""

import pytest

from paceline.core.scheme import make
from paceline.core.trace import Applied, Record, Span
from paceline.core.vector import Ghost
from paceline.schemes import asp
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says

KINDS = ("waiting", "communicating")


def test_nobody_waits_for_anybody() -> None:
    """ "nobody waits for anybody": all it takes is the way to the server and back, whoever else is slow."""
    assert says(asp, "nobody waits for anybody")
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: (0.1, 1.0, 30.0)[rank])
    Simulation(
        make("asp", {}), Ghost(4), work, workers=3, latency_s=0.01, bandwidth_gbps=1e6, trace=records.append
    ).run(until=60)
    spans = {kind: [r.seconds for r in records if isinstance(r, Span) and r.activity == kind] for kind in KINDS}
    assert len(spans["waiting"]) > 500
    assert max(spans["waiting"]) == pytest.approx(0.0, abs=1e-9)
    assert spans["communicating"] == pytest.approx([0.02] * len(spans["waiting"]), abs=1e-9)


def test_n_workers_make_n_updates_where_bsp_makes_one() -> None:
    """ "N workers make N updates where BSP makes one" """
    assert says(asp, "N workers make N updates where BSP makes one")
    work = LocalSteps(lambda rank, rng: 1.0)
    versions = {
        name: Simulation(make(name, {}), Ghost(4), work, workers=5).run(until=20.5).server(0).version
        for name in ("asp", "bsp")
    }
    assert versions["asp"] == 5 * versions["bsp"] > 0


def test_staleness_is_one_plus_the_updates_since_the_weights_left() -> None:
    """ "Y is one plus the number of updates applied since the worker's weights left the server; s is the staleness
    weighting (none by default, as in the paper)." """
    assert says(asp, "Y is one plus the number of updates applied since the worker's weights left the server")
    assert says(asp, "(none by default, as in the paper)")
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: (1.0, 7.5)[rank])
    Simulation(make("asp", {}), Ghost(4), work, workers=2, trace=records.append).run(until=30)
    slow = [r for r in records if isinstance(r, Applied) and r.ranks == (1,)]
    assert [r.staleness for r in slow[:3]] == [7, 7, 8]
    assert {r.weight for r in slow} == {1.0}
