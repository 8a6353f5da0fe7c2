"""Counts how many samples all workers have trained, as one of them knows it; and how many more it may train.

    in lock-step   the total comes with every exchange (`Role.samples_seen`) and is the same for all. Where rounds are
                   equal they are deterministic: until the next exchange the others are taken to train as many as this
                   worker does
    elsewhere      the total of the last exchange and what this worker has trained since, or what the coordinator has
                   reported since, whichever is more

Where an exchange does not count the samples of all (`Scheme.total_is_exact`), rounds and schedules go by the first, as
if all had equal batches; what is reported, and the end of a loop with batches of its own, go by the second.

In equal rounds all divide what is left (`InRounds`); elsewhere the coordinator does (`ByQuota`).

Example (lock-step, 4 workers, batches of 32, the run ends after 1,000 samples): at a total of 896 each may train
min(32, 104 / 4) = 26 more; the last round has 4 times 26 = 104 samples, and the run ends at exactly 1,000.

The simulator uses the same objects on its own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paceline.core.role import Role
from paceline.core.samples.batch_cut import batch_of, leaves_one
from paceline.core.samples.sample_budget import part


class Clock:
    """Counts the samples that one worker knows of.

    role     returns its role, which a restart replaces
    workers  returns how many take part
    told     returns the total as the coordinator told it, which may be newer
    exact    does the total of an exchange count the batches of all?
    once     returns how many samples those are that exchanges count, where several models train on the same ones
    """

    def __init__(
        self,
        role: Callable[[], Role],
        *,
        lock_step: bool,
        equal_rounds: bool,
        workers: Callable[[], int],
        told: Callable[[], int],
        once: Callable[[int], int] = lambda samples: samples,
        exact: bool = True,
    ) -> None:
        self.lock_step, self.equal_rounds, self._exact = lock_step, equal_rounds, exact
        self._role, self._workers, self._told, self._once = role, workers, told, once
        self._total = self._trained = -1
        self._own = 0  # of this worker, since the exchange that gave the total

    def trained(self, samples: int) -> None:
        """Counts samples that this worker has trained."""
        self._look()
        self._own += samples

    @property
    def total(self) -> int:
        """Returns the total of the last exchange."""
        self._look()
        return self._trained

    @property
    def own(self) -> int:
        """Returns the samples of this worker that are not in `total`."""
        self._look()
        return self._own

    @property
    def workers(self) -> int:
        """Returns how many workers take part."""
        return self._workers()

    @property
    def now(self) -> int:
        """Returns the clock of the learning-rate schedule."""
        self._look()
        if self.lock_step and self.equal_rounds:
            return self._trained + self._own * self._workers()
        return max(self._trained + self._own, self._told())

    @property
    def total_in_step(self) -> bool:
        """Returns True if all workers know the same exact total after the same exchange."""
        return self.lock_step and self._exact

    @property
    def reported(self) -> int:
        """Returns the samples of all, without those that others are only taken to have trained."""
        return self.now if self._exact else self._told()

    @property
    def at_end(self) -> int:
        """Returns the samples of all once the run is over, as its summary has them: the same on all workers. Others may
        have trained after this worker had left, and what a lost worker had not reported is counted by nobody."""
        return self._told()

    def _look(self) -> None:
        """Takes over the total of the role, if an exchange has changed it."""
        role = self._role()
        if role.samples_seen != self._total:
            self._total, self._own = role.samples_seen, role.samples_ahead
            self._trained = self._once(self._total)


class Allowance(Protocol):
    """Says, before each mini-batch of a run that ends after so many samples, how many may still be trained.

    ends_run: True if the run is over for a worker that gets none.
    """

    ends_run: bool

    def size(self, batch: int, *, begins: bool) -> int:
        """Returns how many samples the next mini-batch has, at most `batch`; 0 for none.

        `begins`: it is the first for an exchange. After 0 for the first one the worker leaves; after 0 for a later
        one it hands over what it has.
        """

    def trained(self, samples: int) -> None:
        """Notes that so many of them were trained."""

    def lost(self, samples: int) -> None:
        """Notes that the last so many that were trained are in no model, and may be trained again."""

    def leave(self) -> None:
        """Returns what this worker holds and does not train, so that others get it. It trains no more."""


class InRounds:
    """Gives, in lock-step with equal rounds, an even part of what is left, known without asking.

    `samples`: of all workers, when the run ends. A worker that its scheme keeps at work in a round, after its part
    is done, goes on with whole mini-batches.
    """

    ends_run = True

    def __init__(self, samples: int, clock: Clock) -> None:
        self._samples, self._clock = samples, clock

    def size(self, batch: int, *, begins: bool) -> int:
        """Returns how many samples of the next mini-batch this worker trains, 0 at the end.

        What the last round lacks is divided among all workers, so that none of them waits for one that has nothing to
        do.
        """
        clock = self._clock
        left = self._samples - clock.total
        if left <= 0:
            return 0
        mine = part(left, clock.workers) - clock.own
        if mine <= 0:
            return batch * begins
        return batch_of(mine, batch) if clock.workers > 1 else min(mine, batch)

    def trained(self, samples: int) -> None:
        """Does nothing: the clock has counted them."""

    def lost(self, samples: int) -> None:
        """Does nothing: the others know of no loss, and all end by the same total."""

    def leave(self) -> None:
        """Holds nothing: the part of each worker follows from who is there."""


class ByQuota:
    """Gives samples that the coordinator has granted this worker, in schemes that are not in lock-step.

    It asks ahead, for what it trains in AHEAD_SECONDS, so that it does not wait while there are any.
    """

    AHEAD_SECONDS = 0.1
    ends_run = True

    def __init__(
        self,
        ask: Callable[[int, int], None],
        answer: Callable[[bool], int | None],
        now: Callable[[], float],
        *,
        divided: bool,
    ) -> None:
        """`ask(samples, batch)` asks for samples, in mini-batches of a size. `answer(wait)` returns what was granted,
        or None where there is no answer yet. `divided`: others get quotas too."""
        self._ask, self._answer, self._now, self._divided = ask, answer, now, divided
        self._held = self._used = 0
        self._asked = False
        self._asked_at = now()
        self._wanted = 0

    def size(self, batch: int, *, begins: bool) -> int:
        """Returns how many samples of the next mini-batch this worker trains.

        More are asked for before the last ones are used up, so that the answer is there when they are.
        """
        if self._asked:
            self._take(wait=False)
        if not self._asked and self._held <= max(batch, self._wanted // 2):
            self._ask_for_more(batch)
        while self._held < batch or (self._divided and leaves_one(self._held, batch)):
            if not self._asked:
                self._ask_for_more(batch)
            if not self._take(wait=True):
                break
        held = max(0, self._held)  # batches of streams cannot be cut: there may be less than nothing
        return batch_of(held, batch) if self._divided else min(batch, held)

    def trained(self, samples: int) -> None:
        """Takes samples off what this worker holds."""
        self._held -= samples
        self._used += samples

    def lost(self, samples: int) -> None:
        """Adds them to what this worker holds."""
        self._held += samples

    def leave(self) -> None:
        if self._asked or self._held > 0:
            self._ask(0, 1)

    def _ask_for_more(self, batch: int) -> None:
        """Asks for what this worker trains in AHEAD_SECONDS at its present speed, at least one mini-batch."""
        now = self._now()
        speed = self._used / max(now - self._asked_at, 1e-6)
        self._wanted = max(1, round(speed * self.AHEAD_SECONDS / batch)) * batch
        self._asked, self._asked_at, self._used = True, now, 0
        self._ask(self._wanted, batch)

    def _take(self, *, wait: bool) -> bool:
        """Takes the answer, if it is there; returns True if samples were granted."""
        given = self._answer(wait)
        if given is None:
            return False
        self._asked = False
        self._held += given
        return given > 0
