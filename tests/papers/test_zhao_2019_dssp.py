"""Zhao et al., Dynamic Stale Synchronous Parallel Distributed Training for Deep Learning, ICDCS 2019."""

from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.schemes import dssp
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says


def run(name: str, **parameters: int) -> tuple[float, int]:
    """Seconds that the fast worker waited in all for a slow one whose steps take 3.3 times as long, and its steps."""
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: (1.0, 1.0, 3.3)[rank])
    scheme = make(name, dict(parameters))
    sim = Simulation(scheme, Ghost(8), work, workers=3, trace=records.append).run(until=400)
    waits = [r.seconds for r in records if isinstance(r, Span) and r.rank == 0 and r.activity == "waiting"]
    return sum(waits), sim.steps[0]


def test_a_fast_worker_waits_less_than_under_the_low_bound() -> None:
    """Abstract: "DSSP ... adaptively determines the next staleness threshold value at run time based on the real-time
    processing speed of workers"; it goes on "when they are foreseen to end just as the slowest pushes"."""
    assert says(dssp, "foreseen to end just as the slowest pushes")
    dynamic, ssp = run("dssp", low=1, high=8), run("ssp", staleness=1)
    assert dynamic[1] >= ssp[1]
    assert dynamic[0] <= ssp[0]


def test_equal_bounds_are_ssp() -> None:
    """ "low = high is SSP." """
    assert says(dssp, "low = high is SSP.")
    assert run("dssp", low=3, high=3) == run("ssp", staleness=3)
