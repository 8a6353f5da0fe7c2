"""LB-BSP by hand: which bounds are refused, what the coordinator answers, and when."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.schemes.lbbsp import LBBSP, Report, Size
from tests.role_driver import ByHand


def coordinator(workers: int = 2, limits: tuple[int, ...] = (), **parameters: Any) -> ByHand:
    scheme = make("lbbsp", parameters)
    assert scheme.Coordinator is not None
    return ByHand(scheme.Coordinator, scheme, workers, batch_limits=limits)


def report(c: ByHand, src: int, round: int, samples: int = 0, seconds: float = 1.0) -> dict[int, Any]:
    return c.on(src, Report(round=round, samples=samples, seconds=seconds))


def test_the_first_round_is_made_of_everybodys_own_batches() -> None:
    c = coordinator()
    assert report(c, 0, 0) == {}
    assert report(c, 1, 0) == {0: Size(samples=0), 1: Size(samples=0)}
    assert report(c, 0, 1, 40, 1.0) == {}
    assert report(c, 1, 1, 20, 1.0) == {0: Size(samples=40), 1: Size(samples=20)}


def test_sizes_are_decided_when_the_last_report_of_a_round_has_come() -> None:
    c = coordinator(global_batch=60)
    report(c, 0, 0)
    assert report(c, 1, 0) == {0: Size(samples=30), 1: Size(samples=30)}
    assert report(c, 1, 1, 30, 3.0) == {}
    assert report(c, 0, 1, 30, 1.0) == {0: Size(samples=45), 1: Size(samples=15)}
    assert c.decisions()[-2:] == [
        (0, "45 samples", "it makes 30.0 of 40.0 samples/s"),
        (1, "15 samples", "it makes 10.0 of 40.0 samples/s"),
    ]


def test_a_question_asked_again_has_the_answer_of_its_round() -> None:
    c = coordinator(global_batch=60)
    report(c, 0, 0)
    report(c, 1, 0)
    assert report(c, 0, 0) == {0: Size(samples=30)}
    assert report(c, 0, 1, 30, 1.0) == {}
    assert report(c, 1, 0) == {1: Size(samples=30)}


def test_nobody_waits_for_one_that_has_left() -> None:
    c = coordinator(3, global_batch=60)
    report(c, 0, 0)
    report(c, 1, 0)
    assert c.gone(2) == {0: Size(samples=30), 1: Size(samples=30)}
    assert report(c, 2, 0) == {}


def test_a_newcomer_is_answered_at_once_until_it_has_caught_up_and_nobody_waits_for_it() -> None:
    c = coordinator(global_batch=60)
    report(c, 0, 0)
    report(c, 1, 0)
    for round in (1, 2):
        report(c, 0, round, 30)
        report(c, 1, round, 30)
    c.gone(1)
    c.came(1)
    assert report(c, 1, 1) == {1: Size(samples=2)}
    assert set(report(c, 0, 3, 30)) == {0}
    assert report(c, 1, 2, 1) == {1: Size(samples=30)}, "a size of the last decision"
    assert report(c, 1, 4, 30) == {}, "it has caught up"
    assert set(report(c, 0, 4, 30)) == {0, 1}


def test_a_newcomer_that_is_a_round_ahead_is_answered_at_once_too() -> None:
    """It has followed a worker whose report of the round was still on its way."""
    c = coordinator(global_batch=60)
    report(c, 0, 0)
    report(c, 1, 0)
    c.gone(1)
    c.came(1)
    assert report(c, 1, 2, 30) == {1: Size(samples=2)}
    assert set(report(c, 0, 1, 30)) == {0}, "nobody else is waited for in that round"
    assert report(c, 0, 2, 30) != {}
    assert report(c, 1, 3, 30) == {}, "the others are at this round, too"
    assert set(report(c, 0, 3, 30)) == {0, 1}


def test_newcomers_that_are_alone_say_which_round_it_is() -> None:
    c = coordinator(global_batch=60)
    report(c, 0, 0)
    report(c, 1, 0)
    c.gone(1)
    c.came(1)
    c.gone(0)
    assert set(report(c, 1, 2, 30)) == {1}
    c.came(0)
    assert set(report(c, 0, 2, 30)) == {0}
    assert set(report(c, 1, 3, 30)) == {1}
    assert report(c, 0, 4, 30) == {}, "it has caught up"
    assert set(report(c, 1, 4, 30)) == {0, 1}


def test_the_sum_of_all_batches_is_known_when_all_of_them_are() -> None:
    c = coordinator()
    report(c, 0, 0)
    report(c, 1, 0)
    c.gone(1)
    c.came(1)
    assert report(c, 1, 0) == {1: Size(samples=0)}, "its own batch"
    assert report(c, 0, 1, 1) == {0: Size(samples=1)}
    assert report(c, 1, 2, 9) == {}
    assert report(c, 0, 2, 1) == {0: Size(samples=1), 1: Size(samples=9)}
    assert c.role.balance.total == 10


@pytest.mark.parametrize(("total", "low", "least"), [(20, 0, 2), (20, 1, 1), (3, 0, 1), (4, 0, 2)])
def test_the_slowest_worker_has_two_samples_where_there_are_two_for_each(total: int, low: int, least: int) -> None:
    """Batch normalisation cannot train on one."""
    c = coordinator(global_batch=total, low=low)
    report(c, 0, 0)
    report(c, 1, 0)
    report(c, 0, 1, total // 2, 0.01)
    assert report(c, 1, 1, total - total // 2, 10.0) == {0: Size(samples=total - least), 1: Size(samples=least)}


def test_bounds_hold() -> None:
    c = coordinator(global_batch=60, low=10, high=45)
    report(c, 0, 0)
    report(c, 1, 0)
    report(c, 0, 1, 30, 0.1)
    assert report(c, 1, 1, 30, 10.0) == {0: Size(samples=45), 1: Size(samples=15)}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"global_batch": 3}, "4 workers cannot share 3 samples a round: raise --lbbsp.global-batch to 4"),
        ({"global_batch": 64, "high": 10}, "lower --lbbsp.global-batch to 40 or raise --lbbsp.high"),
        ({"low": 20, "high": 10}, "lbbsp.high = 10 is below lbbsp.low = 20"),
    ],
)
def test_bounds_that_cannot_hold_are_refused_with_the_way_out(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make("lbbsp", parameters).check(4, 1)


@pytest.mark.parametrize(("claim", "size"), [(1, 50), (49, 50), (64, 64), (80, 80), (81, 80), (1000, 80)])
def test_an_own_batch_beyond_the_bounds_is_brought_to_them(claim: int, size: int) -> None:
    """It is what a worker says of itself, so it must not end the run of all."""
    c = coordinator(low=50, high=80)
    report(c, 0, 0)
    report(c, 1, 0)
    report(c, 0, 1, 64, 1.0)
    assert report(c, 1, 1, claim, claim / size) == {0: Size(samples=64), 1: Size(samples=size)}


def test_own_batches_are_no_more_together_than_one_worker_may_say_that_it_had() -> None:
    """Or an honest worker that is left alone with all of them would be refused."""
    c = ByHand(LBBSP.Coordinator, make("lbbsp", {}), workers=3, most_samples=42)
    for rank in range(3):
        report(c, rank, 0)
    report(c, 0, 1, 3)
    report(c, 1, 1, 3)
    assert sum(size.samples for size in report(c, 2, 1, 42).values()) == 42


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_before_anybody_has_made_a_batch_all_take_their_own(workers: int) -> None:
    """Whatever bounds there are: the size of an own batch is not known yet."""
    c = ByHand(LBBSP.Coordinator, make("lbbsp", {"low": 4}), workers=workers, most_samples=64)
    answers = [report(c, rank, 0) for rank in range(workers)]
    assert answers[-1] == {rank: Size(samples=0) for rank in range(workers)}


def test_a_batch_is_compared_with_those_that_others_have_made() -> None:
    """Two of three workers were restarted, and have made none."""
    c = coordinator(workers=3)
    for rank in range(3):
        report(c, rank, 0)
    report(c, 0, 1, 32)
    report(c, 1, 1, 0)
    assert report(c, 2, 1, 0) == {0: Size(samples=32), 1: Size(samples=0), 2: Size(samples=0)}


def test_it_needs_servers_or_collectives() -> None:
    assert make("lbbsp", {}).worker(0) is LBBSP.Equals
    assert make("lbbsp", {}).worker(1) is LBBSP.Worker


def test_what_a_worker_may_not_take_on_goes_to_the_others() -> None:
    c = coordinator(3, (96, 16, 0), global_batch=96)
    for rank in (0, 1):
        report(c, rank, 0)
    assert report(c, 2, 0) == {0: Size(samples=40), 1: Size(samples=16), 2: Size(samples=40)}
    report(c, 0, 1, 40, 0.1)
    report(c, 1, 1, 16, 0.001)
    assert report(c, 2, 1, 40, 4.0) == {0: Size(samples=78), 1: Size(samples=16), 2: Size(samples=2)}


def test_the_smaller_of_high_and_a_workers_largest_batch_holds() -> None:
    c = coordinator(2, (30, 0), global_batch=60, high=40)
    report(c, 0, 0)
    assert report(c, 1, 0) == {0: Size(samples=30), 1: Size(samples=30)}
    report(c, 0, 1, 30, 1.0)
    assert report(c, 1, 1, 30, 0.1) == {0: Size(samples=20), 1: Size(samples=40)}


def test_a_batch_that_is_reported_is_brought_to_the_workers_largest() -> None:
    c = coordinator(2, (0, 8))
    report(c, 0, 0)
    report(c, 1, 0)
    report(c, 0, 1, 32, 1.0)
    assert report(c, 1, 1, 32, 1.0) == {0: Size(samples=32), 1: Size(samples=8)}


def test_a_newcomer_begins_within_its_largest_batch() -> None:
    c = coordinator(2, (0, 1), global_batch=30)
    report(c, 0, 0)
    report(c, 1, 0)
    c.gone(1)
    list(c.role.on_worker_joined(1.0, 1))
    assert report(c, 1, 0) == {1: Size(samples=1)}


@pytest.mark.parametrize(
    ("parameters", "limits", "told"),
    [
        ({"global_batch": 129}, (96, 32), "cannot take 129 samples a round: lower --lbbsp.global-batch to 128"),
        ({"global_batch": 129, "high": 64}, (96, 32), "lower --lbbsp.global-batch to 96"),
        ({"low": 40}, (96, 32), "below --lbbsp.low 40"),
    ],
)
def test_largest_batches_that_cannot_hold_the_global_batch_are_refused(
    parameters: dict[str, Any], limits: tuple[int, ...], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        make("lbbsp", parameters).check_batch_limits(limits)


@pytest.mark.parametrize("limits", [(), (96, 33), (0, 32)])
def test_largest_batches_that_can_are_not(limits: tuple[int, ...]) -> None:
    make("lbbsp", {"global_batch": 129}).check_batch_limits(limits)
    make("hybrid", {"phases": "bsp until 1 epochs; lbbsp"}).check_batch_limits(limits)


@pytest.mark.parametrize(("scheme", "more"), [("sgp", {}), ("hybrid", {"phases": "bsp until 1 epochs; sgp"})])
def test_a_scheme_that_takes_all_batches_to_be_equal_refuses_unlike_ones(scheme: str, more: dict[str, Any]) -> None:
    make(scheme, more).check_batch_limits((32, 32))
    with pytest.raises(ConfigError, match="96,32: sgp takes the batches of all workers to be equal: give one limit"):
        make(scheme, more).check_batch_limits((96, 32))
