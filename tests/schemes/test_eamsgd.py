"""EAMSGD: Nesterov's momentum at the workers."""

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from tests.schemes.elastic import run

GOALS = np.array([1.0, 5.0, -3.0])


def test_momentum_is_nesterovs_at_the_worker() -> None:
    x, v, centre = np.zeros(3), np.zeros(3), 0.0
    for _ in range(4):
        for _ in range(2):
            v = 0.6 * v - 0.1 * (x + 0.6 * v - GOALS)
            x = x + v
        x, centre = x - 0.2 * (x - centre), centre + 0.2 * (x - centre).sum()
    sim = run("eamsgd", 0, 4, tau=2, delta=0.6, alpha=0.2, synchronous=True)
    assert [sim.worker(r).x[0] for r in range(3)] == pytest.approx(x)
    assert sim.model() == pytest.approx(centre)


def test_without_momentum_or_when_it_is_reset_at_every_step_it_is_easgd() -> None:
    plain = run("easgd", 1, 5, tau=1, synchronous=True).model()
    assert run("eamsgd", 1, 5, tau=1, delta=0.0, synchronous=True).model() == pytest.approx(plain)
    assert run("eamsgd", 1, 5, tau=1, memory="reset", synchronous=True).model() == pytest.approx(plain)
    assert run("eamsgd", 1, 5, tau=1, memory="keep", synchronous=True).model() != pytest.approx(plain)


def test_averaged_momentum_is_the_same_on_all_workers() -> None:
    sim = run("eamsgd", 1, 5, tau=2, memory="average", synchronous=True)
    assert len({float(sim.worker(r).start[0]) for r in range(3)}) == 1
