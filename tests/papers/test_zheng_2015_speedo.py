"""Zheng et al., SpeeDO: Parallelizing Stochastic Gradient Descent for Deep Convolutional Neural Network, LearningSys
2015. Its text could not be had; the sentences are those with which the schemes describe its source."""

from paceline.core.scheme import make
from paceline.core.trace import Applied, Record
from paceline.core.vector import Ghost
from paceline.schemes import partial, weedout
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says
from tests.role_driver import server


def test_the_slowest_is_not_made_to_catch_up() -> None:
    """ "A worker that is n ahead waits for one report of each of the others, not for the slowest to make up the
    difference." """
    assert says(
        partial,
        "A worker that is n ahead waits for one report of each of the others, not for the slowest to make up the "
        "difference.",
    )
    speedo = server("partial", workers=2, max_advance=5)
    ssp = server("ssp", workers=2, staleness=4)
    for clock in range(1, 6):
        speedo.push(0, clock)
        ssp.push(0, clock)
    assert set(speedo.push(1, clock=1)) == {0, 1}
    assert set(ssp.push(1, clock=1)) == {0, 1}
    assert set(speedo.push(0, clock=6)) == {0}, "all count from 1 again"
    assert ssp.push(0, clock=6) == {}, "the bound is on the clocks"


def test_a_barrier_at_every_exchange() -> None:
    """ "n = 1 is a barrier at every exchange: the first report of a turn starts the catching up." """
    assert says(partial, "n = 1 is a barrier at every exchange: the first report of a turn starts the catching up.")
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: rng.uniform(0.5, 1.5))
    Simulation(make("partial", {"max_advance": 1}), Ghost(8), work, workers=4, trace=records.append).run(until=50)
    senders = [record.ranks[0] for record in records if isinstance(record, Applied)]
    assert len(senders) > 100
    for turn in range(0, len(senders) - 4, 4):
        assert sorted(senders[turn : turn + 4]) == [0, 1, 2, 3]


def test_one_exchange_of_work_is_lost_by_a_stall() -> None:
    """ "A report is dropped whole; its worker goes on from the weights of the server, and loses one exchange of
    work." """
    assert says(
        weedout,
        "A report is dropped whole; its worker goes on from the weights of the server, and loses one exchange of work.",
    )
    records: list[Record] = []

    def seconds(rank: int, rng: object) -> float:
        return 30.0 if rank == 3 and sim.steps[3] == 5 else 1.0

    work = LocalSteps(seconds)
    sim = Simulation(make("weedout", {"window": 8}), Ghost(8), work, workers=4, trace=records.append)
    sim.run(until=60)
    dropped = [r for r in records if isinstance(r, Applied) and not r.weight]
    assert [r.ranks for r in dropped] == [(3,)]
    assert dropped[0].staleness > 60
