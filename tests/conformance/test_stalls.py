"""One stall of a worker: a few exchanges later all are as fast as before. No scheme remembers it for good."""

import pytest

from tests.conformance.schemes_table import CASES, Case
from tests.conformance.throughput import Stalls, Throughput

SECONDS = (0.5, 0.5, 1.0, 2.0)
WINDOW_S = 180.0
"""Throughput is counted over so long: 15 exchanges of whoever makes the fewest."""

RECOVERY_S = 40.0
"""20 steps of the slowest worker."""

ESYNC_IN_A_PHASE = Case(scheme="hybrid", parameters={"phases": "bsp until 5 steps; esync"}, servers=(1,))
SMOOTHED = Case(scheme="esync", parameters={"smoothing": "ema:0.5"}, servers=(1,))
ROWS = [
    *((case, case.servers[-1]) for case in (*CASES, ESYNC_IN_A_PHASE, SMOOTHED)),
    *((case, 0) for case in CASES if case.leads and 0 in case.servers and case.servers[-1]),
]


@pytest.mark.parametrize(("case", "servers"), ROWS, ids=[f"{case}-on-{servers}" for case, servers in ROWS])
def test_after_a_stall_of_forty_steps_at_any_worker_throughput_comes_back(case: Case, servers: int) -> None:
    stalls = Stalls(SECONDS)
    run = Throughput(case.make(), stalls, servers=servers)
    before = run.between(60.0, 60.0 + WINDOW_S)
    for rank in range(len(SECONDS)):
        over = stalls.at(rank, run.sim.now) + RECOVERY_S
        after = run.between(over, over + WINDOW_S)
        assert sum(after) > 0.95 * sum(before), f"after a stall of worker {rank}: {after}, before: {before}"
        assert after[rank] > 0.6 * before[rank], f"worker {rank} is left behind: {after}, before: {before}"
