"""The conformance table on the live driver, over every transport.

What the simulator has held every row to is not tried again in all combinations: a run here takes threads, sockets and
real seconds. The first row of a scheme runs on every number of servers; a further one on those of `SAMPLE`, over one
transport or the other. A run ends where all are at the optimum and stay there, at the latest after the steps of its
row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.trace import Applied, Ended, MemberChange
from tests.conformance.schemes_table import CASES, OPTIMUM, SAMPLE, W0, Case, distance, labels
from tests.conformance.threads import SECONDS, Fabric, ThreadRun, hub, tcp, unix

on_every_transport = pytest.mark.parametrize("fabric", [hub, tcp])


def on_the_sample(*fabrics: Fabric, all_of_them: bool) -> pytest.MarkDecorator:
    """Over one of the transports, in turn; the first row of every scheme over `all_of_them`."""
    rows, ids = [], []
    for turn, ((case, servers), label) in enumerate(zip(SAMPLE, labels(SAMPLE), strict=True)):
        one = fabrics[turn % len(fabrics)]
        for fabric in fabrics if all_of_them and case.leads else (one,):
            rows.append((case, servers, fabric))
            ids.append(f"{label}-{fabric.__name__}")
    return pytest.mark.parametrize(("case", "servers", "fabric"), rows, ids=ids)


Enough = Callable[[ThreadRun], bool]
SETTLED_STEPS = 10
"""In a row, so that a model that swings through the optimum is not taken for one that is there."""


def far_enough(case: Case) -> Enough:
    return lambda run: min(run.done) >= case.steps


def there(case: Case, ranks: tuple[int, ...] = (0, 1, 2, 3), after: int = 0) -> Enough:
    """These are at the optimum, after so many steps of each, or have had all the steps that they may need."""

    def is_there(run: ThreadRun) -> bool:
        least = min(run.done[rank] for rank in ranks)
        # The model that is read is an exchange behind what the workers are at, or follows it slowly.
        if case.parameters.get("eager") or case.scheme == "halos":
            return least >= case.steps
        return least >= case.steps or (least >= after and min(run.settled[rank] for rank in ranks) >= SETTLED_STEPS)

    return is_there


def case_of(scheme: str, **parameters: Any) -> Case:
    return next(case for case in CASES if case.scheme == scheme and case.parameters == parameters)


@on_the_sample(hub, tcp, all_of_them=True)
def test_it_finds_the_optimum_that_all_workers_share(case: Case, servers: int, fabric: Fabric) -> None:
    run = ThreadRun(case, servers, fabric, enough=there(case)).run()
    assert {distance(model) < case.near for model in run.models.values()} == {True}
    assert len(run.models) == case.workers
    assert run.reason == "enough"
    assert [record.reason for record in run.records if isinstance(record, Ended)] == ["enough"]


def left_by(run: ThreadRun) -> list[MemberChange]:
    return [r for r in run.records[:] if isinstance(r, MemberChange) and r.event == "left"]


@on_the_sample(hub, unix, all_of_them=False)
def test_a_worker_that_leaves_does_not_stall_the_others(case: Case, servers: int, fabric: Fabric) -> None:
    others = (0, 2, 3)
    others_are_there = there(case, others, after=30)

    def enough(run: ThreadRun) -> bool:
        """Not before worker 1 is heard to have left, however slow its thread is."""
        return others_are_there(run) and "worker 1" in {r.party for r in left_by(run)}

    run = ThreadRun(case, servers, fabric, leave_after={1: 10}, enough=enough).run()
    assert 10 <= run.done[1] < case.steps
    left = [(r.party, r.reason) for r in left_by(run)]
    assert left[0] == ("worker 1", "steps")
    assert sorted(left[1:]) == [(f"worker {rank}", "enough") for rank in others]
    assert max(distance(run.models[rank]) for rank in others) < case.near


ROWS_THAT_LOSE = [(case, servers) for case, servers in SAMPLE if servers or not case.make().uses_mean(0)]
"""Where a worker can be lost: means without servers would end with it."""


@pytest.mark.parametrize("fabric", [unix])
@pytest.mark.parametrize(("case", "servers"), ROWS_THAT_LOSE, ids=labels(ROWS_THAT_LOSE))
def test_a_worker_that_dies_comes_back_and_all_find_the_optimum(case: Case, servers: int, fabric: Fabric) -> None:
    run = ThreadRun(case, servers, fabric, die_after={1: 10}, enough=far_enough(case)).run()
    events = [(r.party, r.event) for r in run.records if isinstance(r, MemberChange)]
    assert ("worker 1", "lost") in events
    assert ("worker 1", "returned") in events
    assert max(distance(model) for model in run.models.values()) < case.near
    assert len(run.models) == case.workers


def apart(rank: int, w: Any) -> Any:
    """Every worker pulls to an optimum of its own, so that it matters who counts, and how much."""
    return w - OPTIMUM * np.float32(1 + rank)


def sequential(steps: int, lr: float, samples: Callable[[int], int]) -> Any:
    """One process on the union of all batches."""
    w = W0
    n = [samples(rank) for rank in range(4)]
    for _ in range(steps):
        w = w - lr * sum(k * apart(rank, w) for rank, k in enumerate(n)) / sum(n)
    return w


@pytest.mark.parametrize("case", [case for case in CASES if case.leads and case.servers != (0,)], ids=str)
def test_in_slices_it_finds_the_optimum_too(case: Case) -> None:
    run = ThreadRun(case, 2 if 3 in case.servers else 1, tcp, enough=there(case), slice_length=5).run()
    assert {distance(model) < case.near for model in run.models.values()} == {True}


@on_every_transport
@pytest.mark.parametrize(("servers", "slice_length"), [(0, 0), (1, 0), (1, 1), (2, 5), (3, 0), (3, 2)])
def test_bsp_is_one_process_with_all_batches_in_one(servers: int, slice_length: int, fabric: Fabric) -> None:
    steps = 25
    everybody = dict.fromkeys(range(4), steps)
    run = ThreadRun(
        case_of("bsp"),
        servers,
        fabric,
        leave_after=everybody,
        work=apart,
        samples=lambda rank: 1 + 2 * rank,
        slice_length=slice_length,
    ).run()
    reference = sequential(steps, 0.1, lambda rank: 1 + 2 * rank)
    assert run.done == [steps] * 4
    for model in run.models.values():
        np.testing.assert_allclose(model, reference, rtol=1e-6, atol=1e-6)
    updates = [record for record in run.records if isinstance(record, Applied)]
    assert len(updates) == steps * servers, "one slice of each server tells of them"
    assert all(update.ranks == (0, 1, 2, 3) and update.samples == 16 for update in updates)


@on_every_transport
@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("bound", [0, 3])
def test_no_worker_ever_starts_a_step_beyond_the_bound_of_ssp(bound: int, servers: int, fabric: Fabric) -> None:
    ahead: list[int] = []
    run = ThreadRun(
        case_of("ssp", staleness=bound),
        servers,
        fabric,
        leave_after=dict.fromkeys(range(4), 60),
        begins=lambda rank: ahead.append(run.done[rank] - min(run.done)),
    )
    run.run()
    assert len(ahead) == 4 * 60
    assert max(ahead) == bound


@on_every_transport
def test_the_seconds_of_a_worker_that_waits_are_seconds_of_waiting(fabric: Fabric) -> None:
    run = ThreadRun(case_of("bsp"), 1, fabric, leave_after=dict.fromkeys(range(4), 50)).run()
    fast = run.progress[0]
    assert fast.seconds_waiting > 50 * (max(SECONDS) - SECONDS[0]) / 2
    assert fast.seconds_waiting > fast.seconds_communicating
    assert fast.bytes_up > 0
    assert fast.bytes_down > 0
