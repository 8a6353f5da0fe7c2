"""What servers refuse, in every box that takes contributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from paceline.core.collective.mean_server import MeanServer, Part
from paceline.core.effects import Reply
from paceline.core.errors import ConfigError, Diverged
from paceline.core.local.elastic_averaging import Replica
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.gradient_check import REFUSED_IN_A_ROW, GradientCheckPolicy, SliceGradientCheck
from paceline.core.role import RoleContext
from paceline.core.scheme import make, names
from paceline.core.trace import Gated, Record
from tests.role_driver import ByHand, server

CLOCKED = [name for name in names() if issubclass(make(name, {}).Server or object, ClockedServer)]


def gate(mode: str = "warn", workers: int = 2, note: Any = None, **policy: Any) -> SliceGradientCheck:
    made = GradientCheckPolicy(mode=mode, **policy).gate(lambda v, onto: float(np.linalg.norm(v)), workers, 0, note)
    assert made is not None
    return made


def test_the_catalogue_has_clocked_schemes() -> None:
    assert {"asp", "bsp", "ssp", "gsp", "ksync", "weedout", "partial", "dssp", "dcasgd"} <= set(CLOCKED)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("scheme", CLOCKED)
def test_a_refused_push_changes_nothing_is_answered_and_the_run_goes_on(scheme: str, bad: float) -> None:
    by_hand = server(scheme, place={"gate": gate()})
    updates: list[Any] = []
    by_hand.role.update = lambda w, g, samples: updates.append((g, samples)) or w - g
    answered: list[int] = []
    for clock in (1, 2, 3, 4):  # worker 0 computes on whatever it gets; worker 1 never a number
        for rank in (0, 1):
            answered += by_hand.push(rank, clock, g=bad if rank else 1.0)
    assert answered.count(0) >= 3
    assert answered.count(1) >= 3
    assert updates, "the samples that count make updates"
    assert all(np.isfinite(g).all() and samples == 1 for g, samples in updates)
    assert np.isfinite(by_hand.role.w).all()
    assert by_hand.role.version == len(updates)


def test_who_is_dropped_as_late_while_another_is_rejected_keeps_the_run_from_ending_as_diverged() -> None:
    """Worker 1 reports twice as often, and so worker 0 is never among the last two: nothing else would pass."""
    expelled: list[int] = []
    policy = GradientCheckPolicy(strikes=12)
    check = policy.gate(lambda v, onto: float(np.linalg.norm(v)), 2, 0, None, lambda rank, why: expelled.append(rank))
    weedout = server("weedout", workers=2, place={"gate": check}, window=1)
    for clock in range(1, 2 * REFUSED_IN_A_ROW):
        weedout.push(1, 2 * clock - 1, g=math.nan)
        weedout.push(1, 2 * clock, g=math.nan)
        weedout.push(0, clock)
    assert weedout.role.version == 0, "all that was finite came late"
    assert set(expelled) == {1}


def test_bad_numbers_that_come_late_count_as_such() -> None:
    records: list[Record] = []
    fates: list[tuple[int, str, Any]] = []
    place = {"gate": gate(workers=3, note=records.append), "settled": lambda *fate: fates.append(fate)}
    ksync = server("ksync", workers=3, place=place, k=2)
    for rank in (0, 1):
        ksync.push(rank, 1, samples=8)
    assert set(ksync.push(2, 1, g=math.nan, samples=8, data=((0, 0, 8),))) == {2}
    assert [(r.rank, r.refused) for r in records if isinstance(r, Gated)] == [(2, True)]
    assert fates == [(2, "refused", ((0, 0, 8),))]
    assert ksync.role.samples_seen == 24
    assert ksync.role.version == 1
    assert np.isfinite(ksync.role.w).all()


def test_a_round_closes_with_the_samples_that_counted() -> None:
    bsp = server("bsp", workers=3, place={"gate": gate(workers=3)})
    assert bsp.push(0, 1, g=2.0, samples=4) == {}
    assert bsp.push(1, 1, g=math.nan, samples=64) == {}
    assert set(bsp.push(2, 1, g=5.0, samples=8)) == {0, 1, 2}
    assert bsp.role.w == [-4.0]
    assert [(u.ranks, u.weight, u.samples) for u in bsp.updates()] == [((1,), 0.0, 64), ((0, 2), 1.0, 12)]


def test_a_round_of_refused_pushes_is_no_update() -> None:
    bsp = server("bsp", place={"gate": gate()})
    assert bsp.push(0, 1, g=math.nan) == {}
    said = bsp.push(1, 1, g=math.inf)
    assert [said[rank].version for rank in (0, 1)] == [0, 0]
    assert bsp.role.w == [0.0]
    assert set(bsp.push(0, 2) | bsp.push(1, 2)) == {0, 1}
    assert bsp.role.w == [-1.0]


def test_an_elastic_centre_does_not_feel_a_replica_that_is_no_number() -> None:
    easgd = server("easgd", place={"gate": gate(), "w": np.ones(1)})
    said = easgd.on(0, Replica(x=np.array([math.nan]), clock=1, samples=8))
    assert said[0].w == [1.0]
    assert easgd.role.w == [1.0]
    assert easgd.role.version == 0
    easgd.on(1, Replica(x=np.array([2.0]), clock=1, samples=8))
    assert easgd.role.w > 1.0


def mean_server(workers: int = 3) -> MeanServer:
    everybody = tuple(range(workers))
    place = RoleContext(me=0, workers=everybody, w=None, update=lambda w, g, samples: w, gate=gate(workers=workers))
    return MeanServer(None, place)


def part(v: float, weight: float = 1.0) -> Part:
    return Part(v=np.array([v]), among=(0, 1, 2), tag="t", weight=weight)


def test_a_part_that_is_no_number_counts_nothing_in_a_mean() -> None:
    means = mean_server()
    assert list(means.on(0.0, 0, part(1.0))) == []
    assert list(means.on(0.0, 1, part(math.nan))) == []
    replies: list[Any] = list(means.on(0.0, 2, part(3.0, weight=3.0)))
    assert all(isinstance(reply, Reply) for reply in replies)
    assert {reply.to for reply in replies} == {0, 1, 2}
    assert replies[0].message.v == [2.5]
    assert replies[0].message.weight == 4.0


def test_a_mean_without_a_single_number_ends_the_run() -> None:
    means = mean_server()
    list(means.on(0.0, 0, part(math.nan)))
    list(means.on(0.0, 1, part(math.nan)))
    with pytest.raises(Diverged, match=r"mean t .*lower --lr"):
        list(means.on(0.0, 2, part(math.nan)))


def test_those_who_count_nothing_do_not_make_a_mean_of_what_was_refused() -> None:
    means = mean_server()
    list(means.on(0.0, 1, part(5.0, weight=0.0)))
    list(means.on(0.0, 0, part(math.inf)))  # the only one that counts, as in the mean of the initial weights
    with pytest.raises(Diverged, match="nobody's part of the mean t is finite"):
        list(means.on(0.0, 2, part(5.0, weight=0.0)))


def test_a_mean_of_rejected_parts_is_forgotten_where_its_members_have_left() -> None:
    """A newcomer that asks for it opens another one, and is not given a result without a vector."""
    means = mean_server(workers=2)
    among: Any = {"among": (0, 1), "tag": "t", "weight": 1.0}
    assert list(means.on(0.0, 0, Part(v=np.array([math.nan]), **among))) == []
    assert list(means.on_worker_left(0.0, 0)) == []
    assert list(means.on_worker_joined(0.0, 0)) == []
    assert list(means.on_worker_left(0.0, 1)) == []
    replies: list[Any] = list(means.on(0.0, 0, Part(v=np.array([4.0]), **among)))
    assert [reply.message.v for reply in replies] == [[4.0]]


def test_wild_norms_are_noted_and_refused_only_where_asked() -> None:
    for mode, refused in (("warn", False), ("reject", True)):
        records: list[Record] = []
        one = gate(mode, note=records.append)
        for number in range(10):
            assert one.push(0.0, number % 2, np.array([1.0])) is None
        assert one.push(1.0, 1, np.array([2.9])) is None
        assert (one.push(1.0, 1, np.array([-100.0])) is not None) is refused
        (found,) = records
        assert isinstance(found, Gated)
        assert (found.rank, found.number, found.refused) == (1, 7, refused)
        assert found.reason == "norm 100, 100 times the running median of all workers"


def test_one_worker_that_is_always_wild_does_not_become_the_measure() -> None:
    one = gate("reject", workers=8)
    rejected = [rank for _ in range(100) for rank in range(8) if one.push(0.0, rank, np.full(1, 100.0 ** (rank == 5)))]
    assert rejected == [5] * 100


def test_the_measure_follows_norms_that_change_for_everybody() -> None:
    one = gate("reject", workers=2)
    norms = [1.0] * 64 + [10.0] * 64
    refused = [i for i, norm in enumerate(norms) if one.push(0.0, i % 2, np.array([norm]))]
    assert refused == list(range(64, 64 + 32))


def test_when_nobody_has_numbers_any_more_the_run_ends_and_says_what_to_do() -> None:
    one = gate(workers=2)
    one.push(0.0, 0, np.ones(1))
    one.push(0.0, 1, np.ones(1))
    for _ in range(100):  # the fault of one worker is not that of the model
        assert one.push(0.0, 1, np.array([math.nan])) is not None
    with pytest.raises(Diverged, match=r"server 0 refused the last 101 .*lower --lr"):
        one.push(0.0, 0, np.array([math.nan]))


@pytest.mark.parametrize("box", ["bsp", "easgd", "a mean"])
def test_whoever_has_left_does_not_keep_the_others_from_diverging(box: str) -> None:
    one = gate(workers=3)
    place = {"gate": one, "w": np.ones(1)}
    role = ByHand(MeanServer, None, 3, **place) if box == "a mean" else server(box, 3, place=place)
    for rank in range(3):
        one.push(0.0, rank, np.ones(1))
    one.push(0.0, 2, np.array([math.nan]))
    role.gone(2)
    for number in range(REFUSED_IN_A_ROW * 2 - 1):
        assert one.push(0.0, number % 2, np.array([math.nan])) is not None
    list(role.role.on_worker_joined(0.0, 2))
    one.push(0.0, 0, np.array([math.nan]))  # worker 2 may still have numbers
    role.gone(2)
    with pytest.raises(Diverged, match=f"refused the last {REFUSED_IN_A_ROW * 2 + 1} "):
        one.push(0.0, 1, np.array([math.nan]))


def test_off_means_no_gate_and_a_factor_has_a_floor() -> None:
    assert GradientCheckPolicy(mode="off").gate(lambda v, onto: abs(v), 1, 0, None) is None
    with pytest.raises(ConfigError, match="above 1"):
        GradientCheckPolicy(factor=1.0)
    with pytest.raises(ConfigError, match="off, warn or reject"):
        GradientCheckPolicy(mode="maybe")


def pushes_in_an_open_round(bad: list[int], waiting: set[int], workers: int, strikes: int = 10) -> list[int]:
    """Who is to be expelled when `waiting` have come to a round, and the `bad` ones push NaN a hundred times each."""
    expelled: list[int] = []
    norm = lambda v, onto: float(np.linalg.norm(v))  # noqa: E731
    policy = GradientCheckPolicy(strikes=strikes)
    one = policy.gate(norm, workers, 0, None, lambda rank, why: expelled.append(rank))
    assert one is not None
    for rank in range(workers):
        one.push(0.0, rank, np.array([1.0]))
    for _ in range(100):
        for rank in bad:
            one.push(0.0, rank, np.array([math.nan]), None, waiting)
    return expelled


def test_the_only_one_that_does_not_wait_is_expelled() -> None:
    assert set(pushes_in_an_open_round([2], {0, 1}, 3)) == {2}
    assert set(pushes_in_an_open_round([1], {0}, 2)) == {1}
    with pytest.raises(Diverged):
        pushes_in_an_open_round([2], {0, 1}, 3, strikes=0)


def test_the_model_has_diverged_though_one_waits_that_was_finite() -> None:
    with pytest.raises(Diverged):
        pushes_in_an_open_round([1, 2], {0}, 3)
    with pytest.raises(Diverged):
        pushes_in_an_open_round([2, 3], {0, 1}, 4)
    assert pushes_in_an_open_round([2, 3], {0}, 4) == [], "worker 1 is only slow"


def lognormal(sigma: float, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    return lambda: np.array([float(np.exp(rng.normal(0.0, sigma)))])


def test_norms_that_differ_much_in_a_healthy_run_are_not_wild() -> None:
    """As of rare tokens: with a spread of 1 one norm in eight is above three times the median."""
    records: list[Record] = []
    one, norm = gate("reject", workers=4, note=records.append), lognormal(1.0)
    pushed = [one.push(0.0, number % 4, norm()) for number in range(1000)]
    assert sum(reason is not None for reason in pushed) <= 10


def test_a_liar_is_wild_among_norms_that_differ() -> None:
    one, norm = gate("reject", workers=4), lognormal(0.5)
    lies = [one.push(0.0, rank, norm() * 1000.0 ** (rank == 3)) for _ in range(100) for rank in range(4)]
    assert all(lies[3 + 4 * 2 :: 4])
    assert not any(reason for at, reason in enumerate(lies) if at % 4 != 3 and at > 8)


def test_norms_that_fall_over_a_run_are_not_wild() -> None:
    one = gate("reject", workers=4)
    assert not any(one.push(0.0, number % 4, np.array([0.99**number])) for number in range(1000))
