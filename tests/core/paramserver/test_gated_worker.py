"""The worker of clock-gated servers: pull once, then compute and push."""

from typing import Any

import numpy as np
import pytest

from paceline.core.effects import KEEP, RESET, SERVERS, Call, Compute, Computed, Train, Trained, memory_after
from paceline.core.paramserver.gated_server import Pull, Push, Weights
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.role import RoleContext
from paceline.core.scheme import make


def test_the_worker_pulls_once_then_computes_and_pushes() -> None:
    worker = ClockedWorker(None, RoleContext(me=0, workers=(0,), w=None, update=lambda w, g, samples: w))
    run = worker.run()
    assert next(run) == Call(SERVERS, Pull())
    assert run.send(Weights(w="w0", version=0)) == Compute("w0")
    assert run.send(Computed("g0", 8, 0.1)) == Call(SERVERS, Push(g="g0", clock=1, samples=8))
    assert run.send(Weights(w="w1", version=1)) == Compute("w1")
    assert run.send(Computed("g1", 8, 0.1)) == Call(SERVERS, Push(g="g1", clock=2, samples=8))


def test_a_restarted_worker_goes_on_where_its_clock_was() -> None:
    worker = ClockedWorker(None, RoleContext(me=0, workers=(0,), w=None, update=lambda w, g, samples: w))
    run = worker.run()
    run.send(None)
    for message in (Weights(w="w0", version=0), Computed("g", 1, 0.1), Weights(w="w1", version=1)):
        run.send(message)
    run.close()
    run = worker.run()
    next(run)
    run.send(Weights(w="w5", version=5))
    assert run.send(Computed("g", 1, 0.1)).message.clock == 2


@pytest.mark.parametrize("scheme", ["asp", "bsp", "ssp", "gsp", "lbbsp"])
def test_progress_is_the_number_by_which_a_newcomer_compares_workers(scheme: str) -> None:
    worker = make(scheme, {}).worker(1)(make(scheme, {}), RoleContext(me=0, workers=(0,), w=None, update=None))
    worker.clock = 7
    assert worker.progress() == worker.progress_key(worker.join_state())[0]


def test_the_clock_of_a_push_that_the_servers_may_have_kept_is_not_used_again() -> None:
    """The snapshot to which they went back may have it; the next push would count as its repetition, and be lost."""
    worker = ClockedWorker(None, RoleContext(me=0, workers=(0,), w=None, update=lambda w, g, samples: w))
    for clock in (1, 3):
        run = worker.run()
        next(run)
        run.send(Weights(w="w0", version=0))
        assert run.send(Computed("g", 1, 0.1)).message.clock == clock
        worker.on_rollback()  # no answer came
        worker.on_rollback()  # and now nothing is under way
        run = worker.run()
        next(run)
        run.send(Weights(w="w0", version=0))
        assert run.send(Computed("g", 1, 0.1)).message.clock == clock + 1
        run.send(Weights(w="w1", version=1))


@pytest.mark.parametrize("payload", ["gradient", "delta"])
def test_weights_that_have_served_are_nobodys_until_the_next_answer(payload: str) -> None:
    scheme = make("asp", {"payload": payload})
    worker = ClockedWorker(scheme, RoleContext(me=0, workers=(0,), w=None, update=lambda w, g, samples: w))
    run = worker.run()
    next(run)
    work = run.send(Weights(w=np.ones(1), version=0))
    if payload == "gradient":
        assert isinstance(work, Compute)
        assert (work.w.tolist(), worker.w) == ([1.0], None), "the loop has them"
        run.send(Computed(np.ones(1), 1, 0.1))
    else:
        assert isinstance(work, Train)
        assert worker.w is work.x, "the difference is still to be made"
        run.send(Trained(np.zeros(1), 1, 0.1))
        assert worker.pushed is not None
        assert worker.pushed.g.tolist() == [-1.0]
        assert worker.w is None
    run.send(Weights(w=np.zeros(1), version=1))
    run.close()
    assert next(worker.run()) == Call(SERVERS, Pull(last=1)), "where it was closed at its work, it has none"


@pytest.mark.parametrize(("x", "wanted", "then"), [(1.0, KEEP, KEEP), (np.nan, KEEP, RESET), (np.inf, RESET, RESET)])
def test_an_optimizer_starts_anew_after_weights_that_are_not_finite(x: float, wanted: str, then: str) -> None:
    assert memory_after(np.array([x, 0.0]), wanted) == then


@pytest.mark.parametrize("payload", ["delta", "weights"])
def test_after_local_steps_to_nan_the_optimizer_forgets_once(payload: str) -> None:
    scheme = make("partial", {"payload": payload, "steps": 2})
    run = ClockedWorker(scheme, RoleContext(me=0, workers=(0,), w=None, update=lambda w, g, samples: w)).run()
    next(run)
    answer, memories = Weights(w=np.zeros(2), version=0), list[Any]()
    for x in (1.0, np.nan, 2.0, 3.0):
        train = run.send(answer)
        assert isinstance(train, Train)
        memories.append(train.memory)
        run.send(Trained(np.array([x, x]), 8, 0.1))
    assert memories == [KEEP, KEEP, RESET, KEEP]
