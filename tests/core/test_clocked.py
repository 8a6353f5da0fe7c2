from collections.abc import Iterable

import numpy as np
import pytest

from paceline.core.clocked import ClockedServer, ClockedWorker, Pull, Push, Weights, some
from paceline.core.effects import SERVERS, Call, Compute, Computed
from paceline.core.role import Place
from tests.drive import ByHand, server


class Pairs(ClockedServer):
    """Groups (0, 1) and (2,)."""

    def partition(self) -> Iterable[tuple[int, ...]]:
        return (0, 1), (2,)


def test_the_worker_pulls_once_then_computes_and_pushes() -> None:
    worker = ClockedWorker(None, Place(me=0, workers=(0,), w=None, update=lambda w, g, samples: w))
    run = worker.run()
    assert next(run) == Call(SERVERS, Pull())
    assert run.send(Weights(w="w0", version=0)) == Compute("w0")
    assert run.send(Computed("g0", 8, 0.1)) == Call(SERVERS, Push(g="g0", clock=1, samples=8))
    assert run.send(Weights(w="w1", version=1)) == Compute("w1")
    assert run.send(Computed("g1", 8, 0.1)) == Call(SERVERS, Push(g="g1", clock=2, samples=8))


def test_a_restarted_worker_goes_on_where_its_clock_was() -> None:
    worker = ClockedWorker(None, Place(me=0, workers=(0,), w=None, update=lambda w, g, samples: w))
    run = worker.run()
    run.send(None)
    for message in (Weights(w="w0", version=0), Computed("g", 1, 0.1), Weights(w="w1", version=1)):
        run.send(message)
    run.close()
    run = worker.run()
    next(run)
    run.send(Weights(w="w5", version=5))
    assert run.send(Computed("g", 1, 0.1)).message.clock == 2


def test_a_repeated_push_is_answered_and_applied_once() -> None:
    asp = server("asp")
    first = asp.push(0, clock=1)[0]
    again = asp.push(0, clock=1)[0]
    assert first.version == again.version == 1
    assert asp.role.w == [-1.0]
    assert len(asp.updates()) == 1


def test_a_push_repeated_inside_an_open_round_counts_once() -> None:
    bsp = server("bsp")
    assert bsp.push(0, clock=1, g=1.0) == {}
    assert bsp.push(0, clock=1, g=100.0) == {}
    assert bsp.pull(0) == {}, "a restarted worker waits for the round it has contributed to"
    assert set(bsp.push(1, clock=1, g=3.0)) == {0, 1}
    assert bsp.role.w == [-2.0]


def test_a_leaver_releases_those_who_wait_for_it() -> None:
    pairs = ByHand(Pairs, None, workers=3)
    assert pairs.push(0, clock=1) == {}
    answers = pairs.gone(1)
    assert set(answers) == {0}
    assert pairs.role.w == [-1.0]
    assert set(pairs.push(0, clock=2)) == {0}, "alone in its group now"


def test_what_a_leaver_contributed_counts() -> None:
    bsp = server("bsp")
    bsp.push(1, clock=1, g=3.0)
    assert bsp.gone(1) == {}
    assert set(bsp.push(0, clock=1, g=1.0)) == {0}
    assert bsp.role.w == [-2.0]


def test_leaving_twice_is_leaving_once() -> None:
    bsp = server("bsp")
    bsp.gone(1)
    assert bsp.gone(1) == {}
    assert set(bsp.push(0, clock=1)) == {0}


def test_groups_do_not_wait_for_one_another() -> None:
    pairs = ByHand(Pairs, None, workers=3)
    assert set(pairs.push(2, clock=1)) == {2}
    assert pairs.push(0, clock=1) == {}
    assert set(pairs.push(2, clock=2)) == {2}
    assert set(pairs.push(1, clock=1)) == {0, 1}
    assert [(u.ranks, u.staleness) for u in pairs.updates()] == [((2,), 0), ((2,), 0), ((0, 1), 2)]


def test_who_waits_is_told_for_whom_and_only_once() -> None:
    bsp = server("bsp", workers=3)
    bsp.push(1, clock=1)
    bsp.push(0, clock=1)
    assert bsp.decisions() == [
        (1, "wait", "waits for workers 0, 2 of its group"),
        (0, "wait", "waits for worker 2 of its group"),
    ]


def test_the_bound_is_the_reason_of_a_bounded_wait() -> None:
    ssp = server("ssp", staleness=0)
    ssp.push(1, clock=1)
    assert ssp.decisions() == [(1, "wait", "1 clock ahead of worker 0, bound 0")]


def test_what_is_too_late_is_dropped_and_the_reason_is_written() -> None:
    asp = server("asp", weighting="cutoff:1")
    asp.push(0, clock=1)
    assert set(asp.push(1, clock=1)) == {1}
    assert asp.decisions() == [(1, "dropped", "1 versions late")]
    assert [(u.weight, u.version) for u in asp.updates()] == [(1.0, 1), (0.0, 1)]
    assert asp.role.w == [-1.0]


def test_nobody_is_asked_for_reasons_when_nobody_listens() -> None:
    class Silent(ClockedServer):
        def may_go(self, rank: int) -> bool:
            return False

        def why_not(self, rank: int) -> str:
            raise AssertionError("a reason costs time")

    silent = ByHand(Silent, None, note=None)
    assert silent.push(0, clock=1) == {}


def test_the_optimizer_is_told_how_many_samples_are_behind_a_gradient() -> None:
    seen: list[int] = []

    def update(w: np.ndarray, g: np.ndarray, samples: int) -> np.ndarray:
        seen.append(samples)
        return w

    bsp = server("bsp", place={"update": update})
    bsp.push(0, clock=1, samples=3)
    bsp.push(1, clock=1, samples=5)
    assert seen == [8]


def test_what_nobody_expects_is_refused() -> None:
    with pytest.raises(TypeError, match="got str and has no use for it"):
        server("asp").on(0, "hello")


def test_ranks_are_listed_shortly() -> None:
    assert some([1]) == "worker 1"
    assert some([2, 1]) == "workers 1, 2"
    assert some(range(10)) == "workers 0, 1, 2 and 7 more"
