"""Of the fuzzer: a worker is slow for a while, and afterwards the run is as fast as before.

It is slow for one step, as if its process had been stopped, or for several, as if another program had its device. The
run is one of its own, on the drawn cluster without its faults and with steps of equal length, so that throughput can be
compared; what is drawn here comes from a stream of its own.
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
"""Times the length of a step."""
SECONDS = (0.2, 1.0)
"""Fast workers make several steps while a slow one makes one."""
ONE_SEED_IN = 5
"""Such a run takes longer than a storm."""
RESULTS, STEPS = 4, 12
"""Of every worker, after which a run counts as under way; the time it took is the unit of what follows."""
WARM, WINDOW, RECOVERY = 3.0, 4.0, 8.0
"""In that unit: until throughput is counted, for how long, and after the worker has become as fast as before."""
SHARE = 0.6
"""Of the throughput before. Windows cut rounds, and a sample more or less is much in batches of a few."""
ALL_BACK = 0.95
"""From this share on all is well, however it is divided among the workers."""
EVENTS_MAX = 100_000


@dataclass(frozen=True)
class Slow:
    """So many steps of worker `rank` take `factor` times as long. `seconds`: of a step, by rank, on equal devices."""

    seconds: tuple[float, ...]
    rank: int
    steps: int
    factor: float


def draw(seed: int, workers: int) -> Slow | None:
    """None: nobody is slow."""
    random = Random(f"fuzz/{seed}/slow")
    if random.randrange(ONE_SEED_IN):
        return None
    seconds = tuple(random.choice(SECONDS) for _ in range(workers))
    rank = random.randrange(workers)
    if random.random() < 0.5:
        return Slow(seconds, rank, 1, STALL)
    return Slow(seconds, rank, random.randint(5, 30), random.choice((3.0, 10.0)))


class StallRun:
    """Counts what is trained. `slow`: steps that are still to be slow."""

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
        """Goes on until then, or until EVENTS_MAX; returns the time."""
        return self.sim.run(max_events=EVENTS_MAX, stop=lambda sim: holds()).now

    def between(self, since: float, until: float) -> list[float]:
        """Returns samples a second of each worker."""
        self.sim.run(until=until, max_events=EVENTS_MAX)
        of = [0] * len(self.results)
        for at, rank, samples in self.done:
            if since <= at < until:
                of[rank] += samples
        return [n / (until - since) for n in of]

    @property
    def phase(self) -> int:
        """Of a scheme whose phases differ in throughput."""
        return getattr(self.sim.coordinator, "phase", 0)


def check(seed: int, scheme: Scheme, cluster: Cluster, samples: tuple[int, ...]) -> None:
    """Raises InvariantBroken where throughput does not come back."""
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
