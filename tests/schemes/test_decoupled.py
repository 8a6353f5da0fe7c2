"""Decoupled DiLoCo: turns, windows, quorums, late contributions, and what it has in common with DiLoCo."""

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import paceline
import paceline.schemes
from paceline.core.errors import ConfigError
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.scheme import make
from paceline.core.trace import Applied, Record, Span
from paceline.core.vector import Ghost
from paceline.schemes.decoupled import LearnerFragment, OverlapOver, StepsDiscarded
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Host
from tests.role_driver import ByHand

GOALS = np.array([[1.0, 0.0, 2.0, 4.0], [5.0, 2.0, -2.0, 0.0]])
PLAIN = {"outer_lr": 1.0, "outer_momentum": 0.0}


def run(name: str, rounds: int, servers: int = 1, seconds: tuple[float, ...] = (1.0, 1.0), **parameters: Any) -> Any:
    work = LocalSteps(lambda rank, rng: seconds[rank], lambda rank, w: w - GOALS[rank], lr=0.1)
    sim = Simulation(make(name, parameters), np.zeros(4), work, workers=2, servers=servers)
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == rounds).model()


def synchroniser(workers: int = 3, **parameters: Any) -> ByHand:
    scheme = make("decoupled", {"h": 8, "fragments": 1, **PLAIN, **parameters})
    assert scheme.Server is not None
    return ByHand(scheme.Server, scheme, workers)


def fragment(delta: float, *, turn: int = 0, clock: int = 1, tokens: int = 4, **other: Any) -> LearnerFragment:
    values = {"offset": 0, "series": 0, "samples": tokens, "steps": 4, "speed": 1.0, **other}
    return LearnerFragment(delta=np.array([delta]), turn=turn, clock=clock, tokens=tokens, **values)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("seconds", [(1.0, 1.0), (1.0, 3.0)])
def test_a_quorum_of_all_no_overlap_and_one_fragment_are_diloco(servers: int, seconds: tuple[float, ...]) -> None:
    same = {"h": 3, "outer_lr": 0.5, "outer_momentum": 0.8}
    ours = run("decoupled", 5, servers, seconds, fragments=1, tau=0, quorum=0, dynamic=False, **same)
    assert ours == pytest.approx(run("diloco", 5, servers, seconds, **same))


@pytest.mark.parametrize("servers", [1, 3])
def test_on_equal_workers_fragments_with_an_overlap_are_streaming_diloco(servers: int) -> None:
    same = {"h": 6, "fragments": 2, "outer_lr": 0.5, "outer_momentum": 0.8}
    ours = run("decoupled", 6, servers, tau=1, quorum=0, grace=1.0, **same)
    assert ours == pytest.approx(run("diloco", 6, servers, delay=1, alpha=0.0, **same))


def test_the_window_ends_when_a_learner_has_made_its_share_of_the_overlap() -> None:
    s = synchroniser()
    assert s.on(0, fragment(1.0)) == {}
    assert s.on(1, fragment(3.0)) == {}, "within the window others are waited for"
    said = s.on(0, OverlapOver(exchange=1))
    assert sorted(said) == [0, 1]
    assert said[0].theta == [-2.0]
    assert said[0].turn == 1
    assert s.decisions() == [(0, "merge", "without worker 2")]


def test_a_window_ends_early_when_everybody_has_come() -> None:
    s = synchroniser()
    s.on(0, fragment(1.0))
    s.on(1, fragment(1.0))
    assert sorted(s.on(2, fragment(4.0))) == [0, 1, 2]
    assert s.role.w == [-2.0]
    assert s.on(0, OverlapOver(exchange=1)) == {}, "it has been answered"


@pytest.mark.parametrize("exchange", [0, 2])
def test_a_window_ends_by_its_own_exchange_alone(exchange: int) -> None:
    s = synchroniser()
    s.on(0, fragment(1.0))
    assert s.on(0, OverlapOver(exchange=exchange)) == {}
    assert sorted(s.on(0, OverlapOver(exchange=1))) == [0]


def test_the_window_of_a_learner_that_was_lost_is_not_that_of_its_next_incarnation() -> None:
    s = synchroniser(quorum=2)
    s.on(0, fragment(1.0, clock=5))
    assert sorted(s.on(0, OverlapOver(exchange=5))) == [0]
    s.gone(0)
    s.came(0)
    assert s.on(0, fragment(1.0, clock=3)) == {}
    assert sorted(s.on(0, OverlapOver(exchange=3))) == [0]


def test_without_the_quorum_a_learner_goes_on_alone_and_loses_nothing() -> None:
    s = synchroniser(quorum=2)
    s.on(0, fragment(1.0))
    alone = s.on(0, OverlapOver(exchange=1))[0]
    assert (alone.theta, alone.turn) == ([-1.0], 0), "Theta, less what it has sent itself"
    assert s.role.w == [0.0]
    s.on(0, fragment(0.5, clock=2))
    s.on(1, fragment(3.0, tokens=8, steps=8))
    assert s.on(1, OverlapOver(exchange=1))[0].theta == pytest.approx([-(1.5 + 3.0) / 2])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_who_comes_late_counts_as_if_it_had_come_in_time(momentum: float) -> None:
    early, late = (synchroniser(2, outer_momentum=momentum, grace=grace) for grace in (1.0, 0.0))
    for s in (early, late):
        s.on(0, fragment(1.0))
        said = s.on(1, fragment(5.0, tokens=8))
    assert late.role.turn == early.role.turn == 1
    assert late.role.w == pytest.approx(early.role.w)
    assert late.role.v == pytest.approx(early.role.v)
    assert said[1].theta == pytest.approx(late.role.w)
    assert [u.ranks for u in late.updates()] == [(0,), (1,)]


def test_a_repeat_changes_nothing_and_is_answered() -> None:
    s = synchroniser(grace=0.0)
    before = s.on(0, fragment(1.0))[0].theta
    assert s.on(0, fragment(9.0))[0].theta == before
    assert len(s.updates()) == 1


def test_a_fragment_of_the_wrong_length_is_answered_and_changes_nothing() -> None:
    s = synchroniser(grace=0.0)
    s.on(0, dataclasses.replace(fragment(1.0), delta=np.ones(3)))
    s.on(1, fragment(1.0, series=5))
    assert s.role.w == [0.0]
    assert [u.weight for u in s.updates()] == [0.0, 0.0]


def test_a_learner_that_leaves_completes_the_quorum_and_what_it_sent_counts() -> None:
    s = synchroniser(quorum=0, tau=0)
    s.on(0, fragment(1.0))
    s.on(1, fragment(2.0))
    assert s.gone(1) == {}
    assert s.gone(2)[0].theta == [-1.5]


def test_slow_learners_make_fewer_steps_so_that_all_meet_at_each_turn() -> None:
    s = synchroniser()
    assert s.on(0, fragment(0.0, speed=4.0)) == {}
    s.on(1, fragment(0.0, speed=1.0))
    said = s.on(2, fragment(0.0, speed=0.1))
    assert [said[rank].steps for rank in (0, 1, 2)] == [8, 2, 1]


def test_nobody_waits_for_a_learner_that_is_ten_times_slower() -> None:
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: (1.0, 1.0, 10.0)[rank])
    scheme = make("decoupled", {"h": 8, "fragments": 2})
    sim = Simulation(scheme, Ghost(12), work, workers=3, servers=1, trace=records.append).run(until=500)
    waited = sum(r.seconds for r in records if isinstance(r, Span) and r.activity != "computing")
    assert waited < 0.01 * 500
    assert min(sim.worker(rank).round for rank in (0, 1, 2)) > 10


def test_a_learner_whose_exchanges_take_two_turns_meets_every_fragment() -> None:
    # Six steps of 1 s a turn; of its own six two overlap with the exchange, which takes 8 s.
    far = Host(name="far", devices=(Device(),), latency_s=4.0)
    near = Host(name="near", devices=(Device(),), servers=1)
    records: list[Record] = []
    scheme, work = make("decoupled", {"h": 24, "fragments": 4}), LocalSteps(lambda rank, rng: 1.0)
    cluster = Cluster(hosts=(near, far), step_s=1.0)
    sim = Simulation(scheme, Ghost(12), work, cluster=cluster, trace=records.append)
    met: Counter[int] = Counter()
    server = sim.server(0)
    count = server.count
    server.count = lambda now, src, m, in_time: (met.update([m.series] * src), count(now, src, m, in_time))
    sim.run(until=400)
    assert sim.worker(1).round < 0.6 * sim.worker(0).round, "it is no test otherwise"
    assert min(met[p] for p in range(4)) >= 0.15 * met.total()


def test_one_quick_step_of_a_learner_does_not_make_the_others_meet_more_often() -> None:
    s = synchroniser(2)
    for turn, speed in enumerate((1.0, 1.0, 9.0, 1.0)):
        s.on(0, fragment(0.0, turn=turn, clock=turn + 1, speed=speed))
        said = s.on(1, fragment(0.0, turn=turn, clock=turn + 1))
        assert said[1].steps == 8


def test_who_was_suspended_for_more_than_all_fragments_takes_the_whole_model() -> None:
    seconds = {0: 1.0, 1: 1.0}
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: seconds[rank], lambda rank, w: w * 0.0 + 1.0, lr=0.1)
    scheme = make("decoupled", {"h": 4, "fragments": 2, "tau": 1, **PLAIN})
    sim = Simulation(scheme, np.zeros(4), work, workers=2, servers=1, trace=records.append)
    handed_over: Counter[int] = Counter()  # by fragment: steps of worker 1
    server = sim.server(0)
    count = server.count

    def counted(now: float, src: int, m: LearnerFragment, in_time: bool) -> None:
        count(now, src, m, in_time)
        if src == 1:
            handed_over[m.series] += m.steps + (not m.alone)  # the overlap has one step, which is forgotten

    server.count = counted
    sim.run(until=8.5)
    seconds[1] = 30.0
    sim.run(until=20)
    seconds[1] = 1.0
    sim.run(stop=lambda sim: sim.worker(1).start == "reset", until=100)
    assert sim.worker(1).turn == sim.server(0).turn > 10
    assert list(sim.worker(1).w) == list(sim.server(0).w), "every fragment, also those it did not exchange"
    assert handed_over == dict.fromkeys((0, 1), sim.worker(1).made), "all that it has trained, before that"
    assert not [r for r in records if isinstance(r, Applied) and r.weight == 0], "nothing is dropped"


def test_discarded_steps_are_counted_once_and_answered_with_the_whole_model() -> None:
    s = synchroniser()
    for _ in range(2):
        assert s.on(1, StepsDiscarded(clock=1, samples=4))[1].samples_seen == 4
    assert [(r.ranks, r.samples, r.weight) for r in s.updates()] == [((1,), 4, 0.0)]


@pytest.mark.parametrize("tau", [0, 1])
def test_a_learner_with_one_gradient_that_is_not_finite_takes_the_whole_model_and_goes_on(tau: int) -> None:
    steps = Counter[int]()

    def gradient(rank: int, w: Any) -> Any:
        steps[rank] += 1
        spread = w.sum() * (np.nan if (rank, steps[rank]) == (1, 9) else 0.0)  # a NaN is in every gradient after it
        return w - GOALS[rank] + spread

    work = LocalSteps(lambda rank, rng: 1.0, gradient, lr=0.1)
    scheme = make("decoupled", {"h": 4, "fragments": 2, "tau": tau, "outer_momentum": 0.5})
    expelled: list[int] = []
    norm, expel = (lambda v, onto: float(np.linalg.norm(v))), (lambda rank, why: expelled.append(rank))
    sim = Simulation(scheme, np.ones(4), work, workers=2, servers=1)
    sim.server(0).gate = GradientCheckPolicy(strikes=3).gate(norm, 2, 0, None, expel)
    sim.run(until=200)
    assert steps[1] > 9, "it is no test otherwise"
    assert not expelled
    assert sim.server(0).w == pytest.approx(GOALS.mean(axis=0), abs=0.5), "both learners' goals count"


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"h": 10, "fragments": 3}, "must be a multiple of"),
        ({"h": 10, "fragments": 5, "tau": 2}, "2 steps later; take less"),
        ({"quorum": 5}, "there are 4 workers"),
    ],
)
def test_what_cannot_work_is_refused(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make("decoupled", parameters).check(4, 1)


@pytest.mark.parametrize("scheme", ["decoupled", "diloco"])
def test_more_fragments_than_trained_numbers_are_refused_in_one_line(scheme: str) -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    with pytest.raises(ConfigError, match="^cannot cut 3 trained parameters into 4 parts: give at most 3 fragments$"):
        paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme, fragments=4, h=8)
