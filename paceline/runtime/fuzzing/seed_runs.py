"""Plays all that belongs to a seed, and many seeds in several processes, with the same results in the same order.

    of a seed     the runs of the simulator (`paceline.sim.fuzzing.fuzz`), runs that lose their leader if the seed draws
                  them (`leader_loss`), and checkpoints on a disk that fails (`checkpoint_faults`)
    with `jobs`   process k plays every `jobs`-th seed, from the k-th one on, and reports each as a line of JSON; the
                  results are read in the order of the seeds, so they are those of one process

A process that finds a violation ends. The seed is played again where its result is read, since a plan does not travel.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

from paceline.core.errors import PacelineError
from paceline.runtime.fuzzing import checkpoint_faults, leader_loss
from paceline.runtime.fuzzing.checkpoint_faults import CheckpointPlan
from paceline.runtime.fuzzing.leader_loss import LeaderPlan
from paceline.sim.fuzzing.fuzz import FuzzPlan, play

AnyPlan = FuzzPlan | LeaderPlan | CheckpointPlan


@dataclass(frozen=True)
class PlayedSeed:
    """Holds what came of a seed. `failure`: the exception as text, "" if it passed; `failed`: the plan that ended with
    it."""

    seed: int
    events: int = 0
    simulated_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    failed: AnyPlan | None = None


def play_seed(plan: FuzzPlan) -> PlayedSeed:
    """Plays all that belongs to the seed of `plan`; a bug may show as any exception, and none is raised."""
    at: AnyPlan = plan
    try:
        outcome = play(plan, digest=False)
        faults = outcome.faults
        if leader := leader_loss.draw(plan):
            at = leader
            faults = faults + leader_loss.play(leader)
        at = checkpoint_faults.draw(plan.seed)
        checkpoint_faults.play(at)
    except Exception as error:  # the seed is worth more than the kind of its exception
        return PlayedSeed(plan.seed, failure=f"{type(error).__name__}: {error}", failed=at)
    return PlayedSeed(plan.seed, outcome.events, outcome.seconds, faults)


def seeds(first: int, last: int | None, deadline: float | None, step: int = 1) -> Iterator[int]:
    """Yields every `step`-th seed from `first` up to `last`, or until `deadline` of the monotonic clock.

    Where both are None there is no end.
    """
    seed = first
    while (last is None or seed < last) and (deadline is None or time.monotonic() < deadline):
        yield seed
        seed += step


def in_order(
    plan_of: Callable[[int], FuzzPlan], first: int, last: int | None, deadline: float | None, jobs: int
) -> Iterator[PlayedSeed]:
    """Yields what came of each seed from `first` on, in their order; see `seeds` for where it ends.

    The first violation is the last one that is yielded. Raises PacelineError if a process ends otherwise.
    """
    if jobs == 1:
        for seed in seeds(first, last, deadline):
            yield (played := play_seed(plan_of(seed)))
            if played.failure:
                return
        return
    children = [_Child(plan_of, seeds(first + number, last, deadline, jobs)) for number in range(jobs)]
    try:
        for seed, child in zip(itertools.count(first), itertools.cycle(children), strict=False):
            result = child.next()
            if result is None:
                return
            if result.failure:
                again = play_seed(plan_of(seed))
                yield again if again.failure else result
                return
            yield result
    finally:
        for child in children:
            child.end()


class _Child:
    """Is a process that plays seeds and writes what came of each into a pipe."""

    def __init__(self, plan_of: Callable[[int], FuzzPlan], its_seeds: Iterator[int]) -> None:
        reads, writes = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._play(plan_of, its_seeds, os.fdopen(writes, "w"))
        os.close(writes)
        self._results = os.fdopen(reads)

    @staticmethod
    def _play(plan_of: Callable[[int], FuzzPlan], its_seeds: Iterator[int], pipe: IO[str]) -> None:
        """Plays seeds in the child, which then ends without what its parent would do at its end."""
        code = 1
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            for seed in its_seeds:
                played = play_seed(plan_of(seed))
                line = [played.seed, played.events, played.simulated_s, played.faults, played.failure]
                print(json.dumps(line), file=pipe, flush=True)
                if played.failure:
                    break
            code = 0
        os._exit(code)

    def next(self) -> PlayedSeed | None:
        """Returns the next result, waiting for it; None when there is none any more. Raises PacelineError."""
        line = self._results.readline()
        if line.endswith("\n"):
            seed, events, simulated_s, faults, failure = json.loads(line)
            return PlayedSeed(seed, events, simulated_s, Counter(faults), failure)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        if status:
            code = os.waitstatus_to_exitcode(status)
            raise PacelineError(f"a process that played seeds ended with {code}; try again with fewer --jobs")
        return None

    def end(self) -> None:
        """Ends the process, if it still runs, and waits for that."""
        self._results.close()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)  # it keeps nothing that could be lost
            os.waitpid(self._pid, 0)
