"""Of the fuzzer: one worker lies, among all else that goes wrong.

The run is the one that the seed draws, with the same faults, made once more with a liar in it. What is drawn here
comes from a stream of its own. Servers keep all that they acknowledged in it: one that is replaced from a copy or a
snapshot does not know the clock of a worker whose first message to it is a lie.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from paceline.core.scheme import Scheme
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.cluster.model import Cluster, Fault
from paceline.sim.simulation import Simulation

ONE_SEED_IN = 3
"""How many seeds there are for one with a liar; its run takes as long as the first one."""
WORKERS_MIN = 3
"""Of two workers that contradict one another, nobody can say which one lies."""
SPIN_S = 5.0
"""Seconds of CPU time that one event may take at most."""


def draw(seed: int, scheme: Scheme, cluster: Cluster, until_s: float) -> Cluster | None:
    """Returns the cluster with a worker that lies, or None if nobody lies under this seed.

    Nobody lies where schemes follow one another: a worker that is misled into another phase stands still for the
    others.
    """
    random = Random(f"fuzz/{seed}/liar")
    if random.randrange(ONE_SEED_IN) or cluster.workers < WORKERS_MIN or "phases" in scheme.parameters():
        return None
    rank, at_s = random.randrange(cluster.workers), random.choice((0.0, random.uniform(0.0, until_s)))
    one_in, for_s = random.choice((1, 3, 20)), random.choice((0.0, 0.0, random.uniform(1.0, until_s)))
    lie = Fault(kind="lie", at_s=at_s, for_s=for_s, one_in=one_in, workers=(rank,))
    hazards = replace(cluster.hazards, servers_keep="all") if cluster.hazards else None
    return replace(cluster, faults=(*cluster.faults, lie), hazards=hazards)


@contextmanager
def nobody_spins(sim: Simulation) -> Iterator[None]:
    """Raises InvariantBroken where one event takes more than SPIN_S of CPU time."""
    # Signals reach the main thread only. Elsewhere a run goes unwatched, and the timeout of the test ends it.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = -1

    def look(*_: Any) -> None:
        nonlocal seen
        # The timer fires every SPIN_S of CPU time. The same count of events twice means that one event took longer than
        # that.
        if sim.events == seen:
            raise InvariantBroken(f"seed {sim.seed}, at {sim.now:.6f} s: an event takes more than {SPIN_S:g} s of CPU")
        seen = sim.events

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, SPIN_S, SPIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
