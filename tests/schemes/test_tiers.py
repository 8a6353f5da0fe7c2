"""Tiers are held to the schemes that they are made of, and to what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.paramserver.gradient_check import GradientCheckPolicy, SliceGradientCheck
from paceline.core.paramserver.peer_check import REFUSED
from paceline.core.scheme import Scheme, make
from paceline.core.trace import Applied, Decided, Record
from paceline.sim import LocalSteps, Simulation, plain_sgd
from paceline.sim.cluster.model import Cluster, Device, Host, Link

GOALS = np.random.default_rng(1).normal(size=(6, 5))
ONE, TWO = "0,1,2,3,4,5", "0,1,2;3,4,5"


def by_rank(rank: int, rng: Random) -> float:
    return 1.0 + rank


def run(
    name: str,
    parameters: dict[str, Any],
    seconds: Callable[[int, Random], float] = by_rank,
    until: float = 60,
    **more: Any,
) -> Simulation:
    work = LocalSteps(seconds, lambda rank, w: w - GOALS[rank], lr=0.1)
    sgd = plain_sgd(0.1)
    sim = Simulation(make(name, parameters), np.zeros(5), work, workers=6, servers=2, update_factory=sgd, **more)
    return sim.run(until=until)


def tiers(inner: str, outer: str, groups: str = TWO, **more: Any) -> Simulation:
    return run("tiers", {"inner": inner, "outer": outer, "groups": groups}, **more)


# ---- equal to what they are made of ----------------------------------------------------------------------------
def test_bsp_in_bsp_is_bsp() -> None:
    both, flat = tiers("bsp", "bsp"), run("bsp", {})
    assert both.steps == flat.steps
    assert both.model() == pytest.approx(flat.model(), rel=1e-12)


def test_bsp_inside_and_asp_weighted_by_staleness_between_is_gsp() -> None:
    records: dict[str, list[Record]] = {"tiers": [], "gsp": []}
    both = tiers("bsp", "asp(weighting=inverse)", trace=records["tiers"].append)
    gsp = run("gsp", {"groups": TWO}, trace=records["gsp"].append)
    assert both.steps == gsp.steps
    assert (both.model() == gsp.model()).all()

    def updates(name: str) -> list[tuple[Any, ...]]:
        applied = [r for r in records[name] if isinstance(r, Applied) and r.shard == 0]
        return [(r.ranks, r.version, r.staleness, r.weight, r.samples) for r in applied]

    assert updates("tiers") == updates("gsp")


AVERAGE = "bsp(payload=delta)"  # of one group: w <- w + (x - w)


@pytest.mark.parametrize(
    ("inner", "parameters"),
    [
        ("bsp", {}),
        ("bsp", {"payload": "delta", "steps": 2}),
        ("localsgd", {"tau": 3}),
        ("slowmo", {"tau": 3}),
        ("diloco", {"h": 4}),
        ("postlocal", {"switch": "4 steps", "tau": 3}),
        ("sparseloco", {"h": 3}),
    ],
)
def test_one_group_is_the_inner_scheme(inner: str, parameters: dict[str, Any]) -> None:
    inside = ", ".join(
        f'{key}="{value}"' if " " in str(value) else f"{key}={value}" for key, value in parameters.items()
    )
    both, flat = tiers(f"{inner}({inside})", AVERAGE, ONE), run(inner, parameters)
    assert both.steps == flat.steps
    assert sum(flat.steps) > 40
    assert both.model() == pytest.approx(flat.model(), rel=1e-9)


EACH = "0;1;2;3;4;5"


@pytest.mark.parametrize(
    ("flat", "parameters", "outer"),
    [
        ("diloco", {"h": 5}, "decoupled(h=5, outer_momentum=0.9, fragments=1, tau=0, quorum=0, dynamic=false)"),
        ("localsgd", {"tau": 5}, "bsp(payload=delta, steps=5)"),
    ],
)
def test_a_scheme_of_means_between_groups_is_one_on_servers(flat: str, parameters: dict[str, Any], outer: str) -> None:
    """Groups of one are the workers themselves. Means between groups are not built; these servers compute the same."""
    both, alone = tiers("bsp", outer, EACH, until=200), run(flat, parameters, until=200)
    assert min(both.steps) > 25
    assert both.steps == pytest.approx(alone.steps, abs=5)
    assert both.model() == pytest.approx(alone.model(), rel=1e-9)


def test_one_worker_is_one_group() -> None:
    work = LocalSteps(by_rank, lambda rank, w: w - GOALS[rank], lr=0.1)
    found = []
    for name, parameters in (("tiers", {"inner": "bsp", "outer": "bsp"}), ("bsp", {})):
        sgd = plain_sgd(0.1)
        made = make(name, parameters)
        found.append(Simulation(made, np.zeros(5), work, workers=1, servers=1, update_factory=sgd).run(until=20))
    assert found[0].steps == found[1].steps
    assert found[0].model() == pytest.approx(found[1].model(), rel=1e-12)


@pytest.mark.parametrize(("inner", "steps"), [("asp", 1), ("asp", 3), ("ssp(staleness=1)", 2)])
def test_one_group_that_nobody_waits_in_is_the_inner_scheme(inner: str, steps: int) -> None:
    """The servers hear of its model now and then; at each time its own server has that of the flat scheme."""
    name = inner.partition("(")[0]
    seconds = {"seconds": lambda rank, rng: (1 + rank) * rng.uniform(0.9, 1.1), "latency_s": 0.0, "bandwidth_gbps": 1e9}
    both = tiers(inner, f"bsp(payload=delta, steps={steps})", ONE, **seconds)
    flat = run(name, {"staleness": 1} if "staleness" in inner else {}, **seconds)
    assert both.steps == flat.steps
    assert both.worker(0).server.server.w == pytest.approx(flat.model(), rel=1e-9)  # type: ignore[attr-defined]


def test_esync_in_one_group_gives_each_worker_the_steps_that_esync_gives_it() -> None:
    both, flat = tiers("esync", AVERAGE, ONE), run("esync", {})
    assert sum(flat.steps) > 100
    assert [abs(a - b) <= 1 for a, b in zip(both.steps, flat.steps, strict=True)] == [True] * 6


def test_a_group_is_as_fast_as_its_slowest_member_and_waits_for_no_other_group() -> None:
    sim = tiers("bsp", "asyncdiloco(h=4)")
    assert [sim.steps[0], sim.steps[3]] == [20, 10]  # 60 s, of 3 and of 6 s a round
    assert max(sim.steps[:3]) - min(sim.steps[:3]) <= 1


# ---- what they are for -----------------------------------------------------------------------------------------
def two_sites() -> Cluster:
    gpus = (Device(count=3, seconds=0.1),)
    home = Host(name="home", site="home", servers=1, devices=gpus)
    away = Host(name="away", site="away", devices=gpus)
    return Cluster(hosts=(home, away), links=(Link(between=("home", "away"), latency_s=0.04, bandwidth_gbps=0.2),))


class Thin:
    """Counts the bytes that pass between the sites."""

    def __init__(self) -> None:
        self.nbytes = 0

    def __call__(self, src: Any, dst: Any, message: Any) -> tuple[Any, int]:
        from paceline.core.message import size

        nbytes = size(message)
        self.nbytes += nbytes * (src.nic.site != dst.nic.site)
        return message, nbytes


def passed(scheme: Scheme, samples: int) -> int:
    """Bytes between the sites until so many steps are made."""
    thin, work = Thin(), LocalSteps(lambda rank, rng: 0.1, lambda rank, w: w - GOALS[rank], lr=0.1)
    sim = Simulation(scheme, np.zeros(5), work, cluster=two_sites(), update_factory=plain_sgd(0.1), passage=thin)
    sim.run(stop=lambda sim: sum(sim.steps) >= samples)
    return thin.nbytes


def test_traffic_between_sites_is_that_of_one_worker_a_site() -> None:
    flat = passed(make("asyncdiloco", {"h": 10}), 600)
    both = passed(make("tiers", {"inner": "bsp", "outer": "asyncdiloco(h=10)"}), 600)
    assert 0 < both < flat / 2.5  # three workers there
    assert both < passed(make("bsp", {}), 600) / 25


# ---- when somebody is lost -------------------------------------------------------------------------------------
def decisions(records: list[Record]) -> list[tuple[int, str]]:
    """The coordinator's, after those of the beginning."""
    return [(r.rank, r.verdict) for r in records if isinstance(r, Decided) and r.party == "coordinator" and r.at > 0]


@pytest.mark.parametrize("inner", ["bsp", "asp", "localsgd(tau=2)", "esync"])
def test_another_member_speaks_for_the_group_when_its_speaker_is_lost(inner: str) -> None:
    records: list[Record] = []
    sim = tiers(inner, "asyncdiloco(h=2)", trace=records.append)
    before = list(sim.steps)
    sim.crash(0)
    sim.run(until=150)
    assert decisions(records) == [(1, "speaks for group 0")]
    assert sim.steps[0] == before[0]
    assert all(after > was + 5 for after, was in zip(sim.steps[1:], before[1:], strict=True))
    said = [r for r in records if isinstance(r, Applied) and r.at > 75 and 1 in r.ranks]
    assert said
    assert all(r.ranks == (1, 2) for r in said)
    sim.join(0)
    sim.run(until=300)
    assert sim.steps[0] > before[0] + 5
    assert decisions(records) == [(1, "speaks for group 0")]  # one that comes back does not take over


def test_a_group_that_is_lost_holds_nobody_up_and_begins_again_from_the_servers_weights() -> None:
    records: list[Record] = []
    sim = tiers("bsp", "bsp", trace=records.append)
    for rank in (0, 1, 2):
        sim.crash(rank)
    sim.run(until=180)
    assert min(sim.steps[3:]) > 20
    was = sim.model()
    for rank in (1, 2):
        sim.join(rank)
    sim.run(until=181)
    assert sim.model() == pytest.approx(was, abs=0.3)
    before = sim.steps[1]
    sim.run(until=300)
    assert sim.steps[1] > before + 10
    assert decisions(records)[-1] in ((1, "speaks for group 0"), (2, "speaks for group 0"))


# ---- what does not go together ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        (
            {"outer": "diloco"},
            r"diloco keeps its model on workers; take decoupled\(outer_momentum=0.9, fragments=1, tau=0, quorum=0\)",
        ),
        ({"outer": "localsgd"}, r"localsgd keeps its model on workers; .*bsp\(payload=delta, steps=8\)"),
        ({"outer": "gosgd"}, "gosgd keeps its model on workers"),
        ({"outer": "lbbsp"}, "lbbsp needs a coordinator of its own"),
        ({"outer": "asyncdiloco(memory=reset)"}, "leave out asyncdiloco.memory"),
        (
            {"outer": "ksync(k=3)"},
            "2 groups are the workers of ksync: .*; groups that are not written down count as two: give tiers.groups",
        ),
        ({"outer": "tiers"}, "tiers is made of several schemes"),
        ({"inner": "hybrid"}, "hybrid is made of several schemes"),
        ({"inner": "sgp"}, "a group has one model"),
        ({"inner": "asp(payload=weights)"}, "a group has one model"),
        ({"inner": "esync(variant=preprint)"}, "a group has one model"),
        ({"inner": "lbbsp"}, "shares a batch out"),
        ({"inner": "diloco(h=4, fragments=2)"}, "hold more than the group's model"),
        ({"inner": "asp", "outer": "asp"}, "or --asp.payload delta"),
        ({"inner": "asp", "outer": "ssp"}, "take bsp inside, or asyncdiloco as outer"),
        ({"inner": "bsp(steps=2)", "outer": "asp"}, "give --asp.steps"),
        ({"groups": "0,1"}, "must name each of the workers 0..5 once"),
        ({"groups": TWO, "labels": "a*6"}, "leave one out"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(parameters: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        make("tiers", parameters).check(6, 2)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("tiers", {"inner": "bsp", "outer": "asp", "groups": TWO}),
        ("tiers", {"inner": "asp", "outer": "asyncdiloco(h=2)", "groups": TWO}),
        ("tiers", {"inner": "localsgd(tau=2)", "outer": "asyncdiloco(h=2)", "groups": TWO}),
        ("halos", {"h": 2, "k": 2, "groups": TWO}),
    ],
)
def test_gradients_that_are_not_finite_are_left_out_and_the_speaker_is_not_blamed_for_them(
    name: str, parameters: dict[str, Any]
) -> None:
    steps = Counter[int]()

    def gradient(rank: int, w: Any) -> Any:
        steps[rank] += 1
        return w * np.nan if rank == 1 and 10 <= steps[1] < 30 else w - GOALS[rank]

    def check(shard: int) -> SliceGradientCheck | None:
        expel = lambda rank, why: expelled.append(rank)  # noqa: E731
        return GradientCheckPolicy(strikes=1).gate(lambda v, onto: float(np.linalg.norm(v)), 6, shard, None, expel)

    expelled: list[int] = []
    records: list[Record] = []
    work = LocalSteps(by_rank, gradient, lr=0.1)
    sim = Simulation(
        make(name, parameters),
        np.ones(5),
        work,
        workers=6,
        servers=2,
        update_factory=plain_sgd(0.1),
        gate=check,
        trace=records.append,
    )
    sim.run(until=200)
    assert steps[1] >= 30, "it is no test otherwise"
    assert not expelled
    assert np.isfinite(sim.model()).all()
    refused = [r for r in records if isinstance(r, Decided) and r.verdict == REFUSED]
    assert {record.rank for record in refused} == {1}
    assert {record.party for record in refused} == {"worker 0"}


def test_it_needs_a_server() -> None:
    with pytest.raises(ConfigError, match="give --servers 1 or more"):
        make("tiers", {}).check(6, 0)


def test_parameters_of_its_schemes_come_from_their_own_sections() -> None:
    own = make("tiers", {"inner": "localsgd(tau=2)", "outer": "asyncdiloco"})
    own = own.completed({"localsgd": {"tau": 9, "memory": "reset"}, "asyncdiloco": {"h": 7}}, 0)
    assert own.parameters()["inner"] == "localsgd(tau=2, memory=reset)"
    assert own.parameters()["outer"] == "asyncdiloco(h=7)"
