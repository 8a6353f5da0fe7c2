"""Means that stand bad contributions: small cases by hand, and what their papers claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.paramserver.robust_mean import CENTRED, KRUM, MEDIAN, RULES, TRIMMED, KeptRound, RobustPolicy
from paceline.core.scheme import make, names
from tests.role_driver import ByHand, server

REAL = [rule for rule in RULES if rule != "none"]


class Numpy:
    def norm(self, v: Any) -> float:
        return float(np.linalg.norm(v))

    def trimmed(self, vectors: Sequence[Any], cut: int) -> Any:
        ordered = np.sort(np.stack(vectors), axis=0)
        return ordered[cut : len(ordered) - cut].mean(axis=0)


def mean(rule: str, *vectors: list[float], f: int = 1) -> list[float]:
    """Of a round of so many workers."""
    make_round = RobustPolicy(rule=rule, f=f).rounds(Numpy())
    assert make_round is not None
    round_ = make_round(range(len(vectors)))
    for rank, v in enumerate(vectors):
        round_.add(rank, np.array(v), 8)
    assert round_.complete
    return [round(float(number), 6) for number in round_.mean()]


def test_trimmed_leaves_out_the_largest_and_the_smallest_of_each_coordinate() -> None:
    assert mean(TRIMMED, [1, 50], [2, 7], [3, 8], [-90, 9], [6, -1]) == [2.0, 8.0]
    assert mean(TRIMMED, [1.0], [2.0], [30.0], [40.0], [9.0], f=2) == [9.0]


def test_the_median_is_that_of_each_coordinate() -> None:
    assert mean(MEDIAN, [1, 50], [2, 7], [3, 8]) == [2.0, 8.0]
    assert mean(MEDIAN, [1.0], [2.0], [3.0], [1e6]) == [2.5]


def test_krum_takes_the_one_whose_nearest_are_nearest() -> None:
    # n = 5, f = 1: two nearest count. Of 1.0 they are 1.1 and 0.8: 0.05; of 1.1: 0.1; of 0.8: 0.13; of 1.4: 0.25.
    assert mean(KRUM, [1.4], [0.8], [1.0], [-100.0], [1.1]) == [1.0]
    assert mean(KRUM, [0, 0], [10, 10], [10, 11], [11, 10], [10.4, 10.4]) == [10.4, 10.4]


def test_centred_clips_what_is_far_to_the_length_in_the_middle() -> None:
    # About 0 the lengths are 1, 2, 3, 4, 100, so tau = 3: (1 + 2 + 3 + 3 - 3) / 5 = 1.2. About 1.2, 0.2, 0.8, 1.8, 2.8,
    # 101.2 away, tau = 1.8: 1.2 + (-0.2 + 0.8 + 1.8 + 1.8 - 1.8) / 5 = 1.68. Then tau = 1.32: 1.68 + 0.96 / 5.
    assert mean(CENTRED, [1.0], [2.0], [3.0], [4.0], [-100.0]) == [1.872]


def test_centred_begins_where_the_round_before_ended() -> None:
    make_round = RobustPolicy(rule=CENTRED).rounds(Numpy())
    assert make_round is not None
    round_ = make_round((0, 1, 2))
    means = []
    for _ in range(12):
        for rank, number in enumerate([5.0, 5.0, -1e3]):
            round_.add(rank, np.array([number]), 1)
        means.append(float(round_.mean()[0]))
        round_.reset()
    assert means[0] < means[1]
    assert means[-1] == pytest.approx(5.0, abs=1e-4)


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.mark.parametrize("attack", [-100.0, 1e30, -1.0, 0.0])
@pytest.mark.parametrize("rule", REAL)
def test_of_eight_workers_one_may_send_whatever_it_likes(rule: str, attack: float) -> None:
    rng = np.random.default_rng(7)
    truth = rng.normal(size=1000)
    honest = [truth + rng.normal(size=1000) for _ in range(7)]
    wanted = np.mean(honest, axis=0)
    got = np.array(mean(rule, *(list(v) for v in [*honest[:4], attack * honest[0], *honest[4:]])))
    at_least = {TRIMMED: 0.95, MEDIAN: 0.9, KRUM: 0.6, CENTRED: 0.9}[rule]
    assert cosine(got, wanted) > at_least
    assert np.linalg.norm(got) < 2 * np.linalg.norm(honest[0])


def by_rule(rule: str, workers: int = 8) -> ByHand:
    return server("bsp", workers=workers, place={"rounds": RobustPolicy(rule=rule).rounds(Numpy())})


@pytest.mark.parametrize("rule", RULES)
def test_the_plain_mean_alone_goes_where_one_worker_wants(rule: str) -> None:
    bsp = by_rule(rule)
    for rank in range(8):
        assert set(bsp.push(rank, 1, g=-100.0 if rank == 5 else 1.0)) == (set(range(8)) if rank == 7 else set())
    assert bool(bsp.role.w[0] > 0) is (rule == "none")
    assert [update.samples for update in bsp.updates()] == [8]


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("rule", [TRIMMED, MEDIAN])
def test_whatever_bit_of_a_number_flips_the_result_stays_among_the_honest(rule: str, bit: int) -> None:
    honest = [np.array([number], np.float32) for number in (0.5, 0.75, 1.0, 1.5)]
    turned = (np.array([1.25], np.float32).view(np.uint32) ^ np.uint32(1 << bit)).view(np.float32)
    (got,) = mean(rule, *(list(v) for v in [*honest[:2], turned, *honest[2:]]))
    assert 0.5 <= got <= 1.5


@pytest.mark.parametrize("rule", REAL)
def test_a_round_that_lost_members_is_closed_by_those_that_came(rule: str) -> None:
    bsp = by_rule(rule, workers=5)
    for rank, g in ((0, 1.0), (1, 1.0), (2, 3.0)):
        assert bsp.push(rank, 1, g=g) == {}
    assert bsp.gone(3) == {}
    assert set(bsp.gone(4)) == {0, 1, 2}
    assert -3.0 <= bsp.role.w[0] <= -0.9
    assert bsp.gone(2) == {}
    assert bsp.push(0, 2) == {}
    assert set(bsp.push(1, 2)) == {0, 1}, "two are averaged"


@pytest.mark.parametrize("rule", REAL)
def test_what_is_no_number_is_far_from_everything_even_without_a_gate(rule: str) -> None:
    assert np.isfinite(mean(rule, [1.0], [2.0], [math.nan], [3.0], [2.5])).all()


@pytest.mark.parametrize(
    ("rule", "f", "workers", "words"),
    [
        (KRUM, 1, 4, "needs 5 workers, --workers says 4: give --workers 5, or --robust trimmed"),
        (KRUM, 2, 6, "needs 7 workers, --workers says 6: give --workers 7, or --robust-f 1"),
        (TRIMMED, 4, 8, "needs 9 workers, --workers says 8: give --workers 9, or --robust-f 3"),
        (MEDIAN, 1, 2, "needs 3 workers, --workers says 2: give --workers 3, or --robust none"),
    ],
)
def test_too_few_workers_are_refused_with_the_way_out(rule: str, f: int, workers: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RobustPolicy(rule=rule, f=f).check(workers)
    RobustPolicy(rule=rule, f=f).check(workers + 1)


def test_schemes_of_whole_rounds_are_those_where_nobody_is_ahead() -> None:
    whole = [name for name in names() if make(name, {}).whole_rounds]
    assert whole == ["bsp"]
    assert all(make(name, {}).max_ahead() == 0 for name in whole)


def test_the_clock_of_the_schedule_follows_no_f_liars_within_their_bounds() -> None:
    for claims, counted in (((32, 32, 32, 0), 128), ((32, 32, 32, 10**9), 128), ((8, 32, 16, 32), 96), ((5, 7), 12)):
        group = KeptRound(range(len(claims)), lambda kept: kept[0], 1)
        for rank, samples in enumerate(claims):
            group.add(rank, 0.0, samples)
        assert group.counted_samples() == counted
    group = KeptRound(range(4), lambda kept: kept[0], 1)
    for rank in range(4):
        group.add(rank, 0.0, 32)
    group.counted_samples()
    group.reset()
    assert group.claimed(10**9) == 32  # refused by the gate, it counts no more than the usual contribution
