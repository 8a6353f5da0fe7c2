import pytest

from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes.dssp import controller
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import ByHand, server
from tests.schemes.clock_watch import Watched


def push(dssp: ByHand, src: int, clock: int, now: float) -> set[int]:
    dssp.now = now
    return set(dssp.push(src, clock))


def test_the_controller_grants_what_ends_just_when_the_slowest_pushes() -> None:
    assert controller(p_last=10, p_interval=1, slowest_last=9, slowest_interval=4, r_max=5) == 3
    assert controller(p_last=10, p_interval=1, slowest_last=9, slowest_interval=4, r_max=2) == 2
    assert controller(p_last=13, p_interval=1, slowest_last=9, slowest_interval=4, r_max=5) == 0
    assert controller(p_last=10, p_interval=0, slowest_last=9, slowest_interval=4, r_max=5) == 0


def test_a_fast_worker_goes_on_beyond_the_low_bound_while_that_saves_waiting() -> None:
    dssp = server("dssp", low=1, high=9)
    assert push(dssp, 1, 1, now=4.0) == {1}
    assert push(dssp, 1, 2, now=8.0) == set(), "two ahead, and nobody knows how fast the other is"
    assert push(dssp, 0, 1, now=8.1) == {0, 1}
    assert push(dssp, 0, 2, now=9.1) == {0}
    assert push(dssp, 0, 3, now=10.1) == {0}
    assert push(dssp, 0, 4, now=11.1) == {0}, "worker 1 is due at 12, and so is the next push of worker 0"
    assert push(dssp, 0, 5, now=12.1) == set()
    assert dssp.decisions()[-1] == (
        0, "wait", "3 clocks ahead of worker 1, bound 1; going on would not save waiting"
    )  # fmt: skip
    assert push(dssp, 1, 3, now=12.2) == {1}
    assert push(dssp, 1, 4, now=16.2) == {0, 1}


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 3), (2, 2), (2, 7)])
def test_nobody_ever_starts_a_step_beyond_the_high_bound(low: int, high: int) -> None:
    work = Watched(lambda rank, rng: rng.expovariate(1 / (1 + 2 * rank)))
    work.sim = Simulation(make("dssp", {"low": low, "high": high}), Ghost(64), work, workers=5, servers=2, seed=low)
    work.sim.run(until=1500)
    assert max(work.ahead) == high, "the bound is kept, and used"


def test_equal_bounds_are_ssp() -> None:
    def steps(name: str, **parameters: int) -> list[int]:
        work = LocalSteps(lambda rank, rng: rng.expovariate(1 / (1 + rank)))
        return Simulation(make(name, dict(parameters)), Ghost(64), work, workers=5, seed=3).run(until=300).steps

    assert steps("dssp", low=2, high=2) == steps("ssp", staleness=2)


def test_bounds_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"dssp.low = 5 lies above dssp.high = 4: swap them"):
        make("dssp", {"low": 5, "high": 4})
