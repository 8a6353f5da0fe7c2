"""Of the fuzzer: a worker is slow for a while, and afterwards the run must be as fast as before.

It is slow for one step, as if its process had been stopped, or for several, as if another program had its device.
The run is one of its own, on the drawn cluster without its faults and with steps of equal length, so that throughput
can be compared; what is drawn here comes from a stream of its own.

    |-- WARM units --|-- WINDOW: before --|-- slow steps --|-- RECOVERY --|-- WINDOW: after --|

A unit is the time in which every worker has made RESULTS results and STEPS steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from paceline.core.scheme import Scheme
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.cluster.model import Cluster
from paceline.sim.kernel.workload import LocalSteps
from paceline.sim.simulation import Simulation

STALL = 40.0
"""How many times as long one step takes that stands for a stopped process."""
SECONDS = (0.2, 1.0)
"""Seconds of a step, one of which is drawn for each worker: fast workers make several steps while a slow one
makes one."""
ONE_SEED_IN = 5
"""How many seeds there are for one with a slow worker; its run takes longer than the first one."""
RESULTS, STEPS = 4, 12
"""Results and steps of every worker, after which a run counts as under way; the time until then is the unit."""
WARM, WINDOW, RECOVERY = 3.0, 4.0, 8.0
"""Units until throughput is counted, for how long it is counted, and from the last slow step to the second count."""
SHARE = 0.6
"""Fraction of the former throughput that is enough. Windows cut rounds, and a sample more or less counts in small
batches."""
ALL_BACK = 0.95
"""From this fraction on all is well, however the samples are divided among the workers."""
EVENTS_MAX = 100_000
"""Events of one run; a run that needs more is not judged."""


@dataclass(frozen=True)
class Slow:
    """Says that `steps` steps of worker `rank` take `factor` times as long. `seconds`: of a step, by rank, on equal
    devices."""

    seconds: tuple[float, ...]
    rank: int
    steps: int
    factor: float


def draw(seed: int, workers: int) -> Slow | None:
    """Returns who is slow and how under this seed, or None if nobody is."""
    random = Random(f"fuzz/{seed}/slow")
    if random.randrange(ONE_SEED_IN):
        return None
    seconds = tuple(random.choice(SECONDS) for _ in range(workers))
    rank = random.randrange(workers)
    if random.random() < 0.5:
        return Slow(seconds, rank, 1, STALL)
    return Slow(seconds, rank, random.randint(5, 30), random.choice((3.0, 10.0)))


class StallRun:
    """Runs `scheme` on a calm cluster, and counts trained samples by time. `left`: steps that are still to be slow."""

    def __init__(self, seed: int, scheme: Scheme, cluster: Cluster, samples: tuple[int, ...], slow: Slow) -> None:
        self.slow, self.left = slow, 0
        self.results = [0] * cluster.workers
        self.done: list[tuple[float, int, int]] = []
        work = LocalSteps(self._seconds, samples=samples.__getitem__)
        calm = replace(cluster, faults=(), hazards=None)
        self.sim = Simulation(scheme, Ghost(12), work, cluster=calm, seed=seed, trace=self._see, watched=False)

    def _seconds(self, rank: int, rng: Random) -> float:
        seconds = self.slow.seconds[rank]
        if rank != self.slow.rank or not self.left:
            return seconds
        self.left -= 1
        return self.slow.factor * seconds

    def _see(self, record: Record) -> None:
        if isinstance(record, Span) and record.steps:
            self.results[record.rank] += 1
            self.done.append((self.sim.now, record.rank, record.samples))

    def when(self, holds: Callable[[], bool]) -> float:
        """Runs until `holds()`, or until EVENTS_MAX events; returns the virtual time in seconds."""
        return self.sim.run(max_events=EVENTS_MAX, stop=lambda sim: holds()).now

    def between(self, since: float, until: float) -> list[float]:
        """Returns each worker's samples per second between two virtual times, by rank."""
        self.sim.run(until=until, max_events=EVENTS_MAX)
        of = [0] * len(self.results)
        for at, rank, samples in self.done:
            if since <= at < until:
                of[rank] += samples
        return [n / (until - since) for n in of]

    @property
    def phase(self) -> int:
        """Returns the phase of a scheme with phases, whose throughputs differ; 0 for all others."""
        return getattr(self.sim.coordinator, "phase", 0)


def check(seed: int, scheme: Scheme, cluster: Cluster, samples: tuple[int, ...]) -> None:
    """Raises InvariantBroken if throughput does not recover after a worker was slow.

    A run is not judged if it needs too many events, or if its scheme entered another phase between the two counts.
    """
    slow = draw(seed, cluster.workers)
    if slow is None:
        return
    run = StallRun(seed, scheme, cluster, samples, slow)
    unit = run.when(lambda: min(run.results) >= RESULTS and min(run.sim.steps) >= STEPS)
    began = WARM * unit
    before, phase = run.between(began, began + WINDOW * unit), run.phase
    run.left = slow.steps
    last_begins = run.when(lambda: not run.left)
    device = cluster.worker_placements()[slow.rank].device
    last = slow.factor * slow.seconds[slow.rank] * (device.factor if device else 1.0)
    since = last_begins + last + RECOVERY * unit
    after = run.between(since, since + WINDOW * unit)
    if run.sim.events >= EVENTS_MAX or run.phase != phase:
        return
    of_all, now = sum(before), sum(after)
    # lbbsp may deal the same batch out otherwise afterwards: one worker has less, and all together as much as before.
    if now < SHARE * of_all or (now < ALL_BACK * of_all and after[slow.rank] < SHARE / 2 * before[slow.rank]):
        what = f"{slow.steps} steps of worker {slow.rank} took {slow.factor:g} times as long"
        raise InvariantBroken(f"seed {seed}, at {run.sim.now:.3f} s: {what}; samples/s before {before}, after {after}")
