"""Phases: the switch is agreed, nothing is lost or counted twice, and the model and the optimizers carry over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.config import build, load, save
from paceline.core.effects import Reply, Tell
from paceline.core.errors import ConfigError
from paceline.core.local.answered_rounds import RoundSent
from paceline.core.local.push_sum import Begin, Share
from paceline.core.paramserver.gated_server import Push
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.phases.phase_end import GoOn, PhaseEntered
from paceline.core.role import RoleContext
from paceline.core.scheme import Scheme, make
from paceline.core.trace import Applied, Decided, Record
from paceline.schemes import hybrid
from paceline.schemes.hybrid import PhaseEnded
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says
from tests.role_driver import ByHand

LENGTH = 400


def phases(text: str, **more: Any) -> Scheme:
    return make("hybrid", {"phases": text, **more})


class Marks:
    """Every gradient is an element of its own, so the model shows how often each was applied, and how far."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, rank: int, w: Any) -> Any:
        mark = np.zeros(LENGTH)
        mark[self.made] = -1.0
        self.made += 1
        return mark


def momentum(length: int) -> Any:
    v = np.zeros(length)

    def update(w: Any, g: Any, samples: int) -> Any:
        v[:] = 0.9 * v + g
        return w - 0.1 * v

    return update


def simulate(scheme: Scheme, gradient: Any, w0: Any, servers: int = 1, **more: Any) -> tuple[Simulation, list[Record]]:
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: (1 + rank) * rng.uniform(0.9, 1.1), gradient, lr=1.0, samples=lambda rank: 2)
    return Simulation(scheme, w0, work, workers=3, servers=servers, trace=records.append, **more), records


def ends(records: list[Record]) -> list[tuple[str, str]]:
    return [(r.verdict, r.reason) for r in records if isinstance(r, Decided) and r.verdict.endswith(" ends")]


@pytest.mark.parametrize("servers", [0, 1, 2])
def test_bsp_in_phases_is_bsp_with_the_optimizers_state_carried_over(servers: int) -> None:
    def run(scheme: Scheme) -> Any:
        sim, _ = simulate(
            scheme, lambda rank, w: w - rank, np.ones(4), servers=servers, update_factory=lambda n: momentum(n)
        )
        sim.run(stop=lambda sim: min(sim.steps) == 30 == max(sim.steps)).run(until=sim.now + 0.5)
        assert sim.steps == [30] * 3
        return sim.model()

    np.testing.assert_array_equal(run(phases("bsp until 7 steps; bsp until 11 steps; bsp")), run(make("bsp", {})))


def server_of(text: str) -> Any:
    update = lambda w, g, samples: w - g  # noqa: E731
    own = phases(text)
    box = own.server(1)
    assert box is not None
    return box(own, RoleContext(me=0, workers=(0,), w=np.zeros(1), update=update))


def test_servers_know_the_samples_of_all_phases_and_go_on_from_them() -> None:
    server = server_of("asp until 1 steps; ssp")
    list(server.on(0.0, 0, Push(g=np.ones(1), clock=1, samples=4, data=((0, 0, 4),))))
    list(server.on(0.0, 0, PhaseEnded(phase=0, w=np.zeros(1), weight=0.0)))
    list(server.on(0.0, 0, Push(g=np.ones(1), clock=1, samples=2, data=((0, 6, 8),))))
    assert (server.phase, server.state_dict()) == (1, {"done": [(0, 0, 4), (0, 6, 8)]})
    resumed = server_of("asp until 1 steps; ssp")
    resumed.load_state_dict({"done": [[0, 0, 4]], "version": 0, "clocks": [], "seen": [], "shift": []})
    assert resumed.state_dict() == {"done": [(0, 0, 4)]}


def test_they_keep_no_account_where_a_phase_has_means_that_name_no_samples() -> None:
    assert server_of("asp until 1 steps; esync").state_dict() == {}


def test_where_workers_meet_all_end_after_the_same_exchange() -> None:
    """ "Where workers meet, all end after the same exchange; elsewhere those that are behind end at once." """
    assert says(hybrid, "Where workers meet, all end after the same exchange;")
    sim, records = simulate(phases("bsp until 7 steps; asp"), lambda rank, w: w, np.ones(4))
    sim.run(until=60)
    together = [r for r in records if isinstance(r, Applied) and r.ranks == (0, 1, 2)]
    alone = [r for r in records if isinstance(r, Applied) and len(r.ranks) == 1]
    assert len(together) == 7
    assert max(r.at for r in together) < min(r.at for r in alone)
    assert ends(records) == [("bsp ends", "7 steps are done")]


@pytest.mark.parametrize("first", ["asp", "ssp(staleness=2)", "bsp", "localsgd(tau=1)", "esync"])
@pytest.mark.parametrize("then", ["asp", "bsp", "localsgd(tau=1)"])
def test_nothing_is_lost_and_nothing_counts_twice(first: str, then: str) -> None:
    """ "A phase ends between two exchanges, after what has been handed over has been answered: nothing is lost and
    nothing counts twice." """
    assert says(hybrid, "nothing is lost and nothing counts twice")
    marks = Marks()
    sim, records = simulate(phases(f"{first} until 6 steps; {then}"), marks, np.zeros(LENGTH))
    sim.run(stop=lambda sim: min(sim.steps) >= 14)
    assert [verdict for verdict, _ in ends(records)] == [first.split("(")[0] + " ends"]
    switched = marks.made - 3  # those of the exchanges under way may not have been applied yet
    asked = sim.model()[: switched - 6]
    assert (asked > 0).all()
    weight = asked / (0.1 if asked.max() < 0.2 else 1.0)
    assert weight.max() <= 1.0 + 1e-6


@pytest.mark.parametrize(
    ("condition", "reason", "at_least"),
    [("5 seconds", "5 seconds have passed", 5.0), ("2 epochs", "2 epochs are done", 0.0)],
)
def test_a_phase_may_end_by_seconds_or_epochs(condition: str, reason: str, at_least: float) -> None:
    sim, records = simulate(phases(f"asp until {condition}; bsp", epoch_samples=20), lambda rank, w: w, np.ones(4))
    sim.run(until=60)
    assert ends(records) == [("asp ends", reason)]
    last = next(r for r in records if isinstance(r, Decided) and r.verdict == "asp ends")
    assert last.at >= at_least


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd(tau=2)"])
@pytest.mark.parametrize(
    ("until", "samples"), [("40 steps", 3 * 40 * 2), ("2 epochs", 2 * 120)], ids=["by steps", "by epochs"]
)
def test_a_phase_ends_in_time_though_workers_are_lost_and_come_back_all_the_while(
    scheme: str, until: str, samples: int
) -> None:
    """What lost workers have done counts; at most the exchange under way of each lost incarnation is unknown."""
    scheme_of_all = phases(f"{scheme} until {until}; bsp", epoch_samples=120)
    sim, records = simulate(scheme_of_all, lambda rank, w: w, np.ones(4))
    ends_at = None
    for turn in range(100):
        sim.run(until=sim.now + 4.0)
        if ends(records):
            ends_at = sum(sim.steps) * 2
            break
        sim.crash(turn % 3)
        sim.run(until=sim.now + 2.0)
        sim.join(turn % 3)
    assert ends_at is not None, "the phase never ends"
    lost = turn * 2 * 2 * 2  # an exchange of two steps of two samples, of each incarnation
    assert ends_at <= samples + lost + 60, f"{ends_at} samples, {turn} incarnations lost"


def test_the_steps_of_a_phase_are_those_of_an_average_worker_whoever_comes_and_goes() -> None:
    scheme = phases("bsp until 10 steps; asp")
    assert scheme.Coordinator
    coordinator: Any = scheme.Coordinator(
        scheme, RoleContext(me=0, workers=(0, 1, 2), w=None, update=lambda w, g, n: w)
    )

    def granted(rank: int, number: int, steps: int) -> bool:
        question = GoOn(phase=0, number=number, steps=steps, samples=steps, meet=False)
        (reply,) = coordinator.on(float(number), rank, question)
        return bool(reply.message.go)

    for number in range(6):  # of three; the last of them is under way
        assert [granted(rank, number, number) for rank in range(3)] == [True] * 3
    list(coordinator.on_worker_left(5.0, 2))
    for number in (6, 7):
        assert [granted(rank, number, number) for rank in range(2)] == [True] * 2
    list(coordinator.on_worker_joined(7.0, 2))
    assert granted(2, 7, 0)
    for number in (8, 9):
        assert [granted(rank, number, number - 7 * (rank == 2)) for rank in range(3)] == [True] * 3
    assert [granted(rank, 10, 10 - 7 * (rank == 2)) for rank in range(3)] == [False] * 3


def test_a_phase_may_end_by_accuracy() -> None:
    sim, records = simulate(phases("asp until accuracy 0.9; bsp"), lambda rank, w: w, np.ones(4))
    sim.run(until=10)
    sim.judged(0.85)
    sim.run(until=20)
    assert ends(records) == []
    sim.judged(0.93)
    sim.run(until=40)
    assert ends(records) == [("asp ends", "the accuracy is 0.930")]


def test_gossip_takes_the_servers_model_and_gives_back_the_mean_of_the_workers() -> None:
    sim, records = simulate(phases("bsp until 3 steps; gosgd until 20 seconds; bsp"), lambda rank, w: w, np.ones(4))
    sim.run(until=80)
    assert [verdict for verdict, _ in ends(records)] == ["bsp ends", "gosgd ends"]
    assert min(sim.steps) > 15
    together = [r for r in records if isinstance(r, Applied)]
    assert all(r.ranks == (0, 1, 2) for r in together)
    assert len(together) > 10


def test_epochs_are_refused_where_nobody_knows_how_long_they_are() -> None:
    sim, _ = simulate(phases("asp until 2 epochs; bsp"), lambda rank, w: w, np.ones(4))
    with pytest.raises(ConfigError, match="give --hybrid.epoch-samples"):
        sim.run(until=60)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gosgd until 5 steps; adpsgd", "both gossip: put another scheme between them"),
        ("bsp until 5 steps; gsp(groups=0)", "must name each of the workers 0..2"),
    ],
)
def test_what_its_phases_refuse_it_refuses(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        phases(text).check(3, 1)


@pytest.mark.parametrize("text", ["bsp until 5 steps; hybrid", "ssp(staleness=-1) until 5 steps; bsp"])
def test_bad_phases_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="hybrid.phases"):
        phases(text)


def test_the_sections_of_the_schemes_apply_and_are_saved_with_the_run(tmp_path: Path) -> None:
    values = {
        "run": {"scheme": "hybrid", "out": "x"},
        "hybrid": {"phases": "ssp until 5 steps; gsp(ratio=3.0) until 5 steps; ssp(staleness=7)"},
        "ssp": {"staleness": 2},
        "gsp": {"ratio": 2.0, "groups": "0,1;2,3"},
    }
    config = build(values)
    wanted = 'ssp(staleness=2) until 5 steps; gsp(ratio=3.0, groups="0,1;2,3") until 5 steps; ssp(staleness=7)'
    assert config.scheme().parameters()["phases"] == wanted
    save(config, tmp_path / "config.toml")
    assert build(load(tmp_path / "config.toml")).scheme() == config.scheme()


@pytest.mark.parametrize(("meet", "last"), [(True, 4), (False, 2)], ids=["by Means", "at servers"])
def test_who_is_heard_late_ends_no_earlier_than_those_it_meets(meet: bool, last: int) -> None:
    """Its question may be overtaken by those that the others ask after the Mean that it took part in."""
    scheme = phases("bsp until 4 steps; asp")
    assert scheme.Coordinator
    coordinator = scheme.Coordinator(scheme, RoleContext(me=0, workers=(0, 1), w=None, update=lambda w, g, n: w))

    def granted(rank: int, number: int) -> bool:
        question = GoOn(phase=0, number=number, steps=number, samples=number, meet=meet)
        (reply,) = coordinator.on(float(number), rank, question)
        return bool(reply.message.go)

    assert [granted(0, number) for number in range(3)] == [True] * 3
    assert [granted(1, number) for number in range(3)] == [True] * 3
    assert granted(0, 3)
    assert granted(0, 4)  # of 3 and 4 of worker 1 nothing has been heard
    assert not granted(0, 5)
    assert [granted(1, number) for number in range(3, 6)] == [number <= last for number in range(3, 6)]


def gossips_next(me: int = 1) -> Any:
    """Worker `me` of four, in a phase after which workers gossip."""
    scheme = phases("ssp until 5 steps; sgp(topology=ring)")
    return scheme.worker(1)(scheme, RoleContext(me=me, workers=(0, 1, 2, 3), w=np.zeros(2), update=lambda w, g, n: w))


def begins_next_phase(worker: Any) -> list[Tell | Reply]:
    early, worker.early = worker.early, []
    said = worker.begin_without_news(early, np.ones(2))
    return [*said, *worker.heard_early(early)]


def hears(worker: Any, src: int, *messages: object) -> None:
    for message in (PhaseEntered(phase=1), *messages):
        assert list(worker.on(0.0, src, message)) == []


def test_one_that_asked_early_and_has_left_is_not_answered() -> None:
    """It waits for nothing any more, and a worker that answers what nobody has asked ends with an error."""
    worker = gossips_next()
    share = Share(w=np.ones(2), weight=0.5, round=0)
    hears(worker, 0, RoundSent(round=0), Begin())
    hears(worker, 2, share, RoundSent(round=0))
    for rank in (0, 2):
        list(worker.on_worker_left(0.0, rank))
    assert not [effect for effect in begins_next_phase(worker) if isinstance(effect, Reply)]
    assert not worker.inner.asked
    assert worker.inner.inbox[0][1] == 0.5, "what it has handed over stays"
    assert worker.inner.away == worker.left == {0, 2}


def test_one_that_left_and_came_again_is_answered_what_it_asked_since() -> None:
    worker = gossips_next()
    hears(worker, 2, RoundSent(round=0))
    list(worker.on_worker_left(0.0, 2))
    list(worker.on_worker_joined(0.0, 2))
    hears(worker, 2, Begin())
    answers = [effect for effect in begins_next_phase(worker) if isinstance(effect, Reply)]
    assert answers == [Reply(2, Begin())]
    assert (worker.inner.away, worker.left) == (set(), set())


def test_one_bad_gradient_in_a_later_phase_does_not_end_the_run() -> None:
    """The check took all for gone that had ended the first phase: there was nobody whose gradients were finite."""
    made = [0, 0]

    def gradient(rank: int, w: Any) -> Any:
        made[rank] += 1
        return w * np.nan if made == [6, made[1]] and rank == 0 else w

    def gate(shard: int) -> Any:
        return GradientCheckPolicy().gate(lambda v, onto: float(np.linalg.norm(v)), 2, shard, None)

    scheme = make("hybrid", {"phases": "bsp until 2 steps; asp"})
    work = LocalSteps(lambda rank, rng: 1.0, gradient)
    sim = Simulation(scheme, np.ones(4), work, workers=2, servers=1, gate=gate)
    sim.run(until=20.0)
    assert min(sim.steps) > 15
    assert np.isfinite(sim.model()).all()


def test_a_model_with_nan_at_the_end_of_a_phase_counts_nothing() -> None:
    made = make("hybrid", {"phases": "localsgd(tau=1) until 4 steps; asp"})
    server = ByHand(made.server(1), made, workers=3)  # type: ignore[arg-type]
    for rank, x in enumerate((1.0, np.nan, 3.0)):
        answers = server.on(rank, PhaseEnded(phase=0, w=np.array([x]), weight=1.0))
    assert {rank: float(answer.w[0]) for rank, answer in answers.items()} == {0: 2.0, 1: 2.0, 2: 2.0}
    (refused,) = [record for record in server.records if isinstance(record, Decided) and record.verdict == "refused"]
    assert refused.rank == 1
