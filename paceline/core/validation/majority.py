"""What most workers report alike counts: one that lies neither ends a run nor has the others refused.

    Majority         more than half report the same: the end of the run, an error
    AgreedAccounts   what all workers share, such as the length of a data set, and the samples that are counted by it

Workers with different claims share nothing. So what one worker claims falsely changes no account of the others, even if
it is the first to report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)
Account = TypeVar("Account")


class Majority(Generic[Value]):
    """Holds the last claim of each worker, by rank. within_s: seconds after which a report is outdated."""

    def __init__(self, within_s: float = math.inf) -> None:
        self._within_s = within_s
        self._claims: dict[int, tuple[Value, float]] = {}

    def report(self, rank: int, claim: Value, now: float = 0.0) -> None:
        self._claims[rank] = claim, now

    def claim_of(self, rank: int) -> Value | None:
        return self._claims[rank][0] if rank in self._claims else None

    def forget(self, rank: int) -> Value:
        return self._claims.pop(rank)[0]

    def who(self, claim: Value) -> list[int]:
        """Returns who has reported that."""
        return [rank for rank, (other, _) in self._claims.items() if other == claim]

    def others(self, claim: Value) -> list[int]:
        """Returns who has reported something else."""
        return [rank for rank, (other, _) in self._claims.items() if other != claim]

    def agreed(self, claim: Value, training: Collection[int], now: float = 0.0) -> bool:
        """Returns True if more than half report `claim`. Workers that have reported it count, too, when they train no
        more."""
        same = {rank for rank, (other, at) in self._claims.items() if other == claim and now - at <= self._within_s}
        return 2 * len(same) > len(same.union(training))

    def settled(self, training: Collection[int]) -> Value | None:
        """Returns the claim on which workers have agreed, or None.

        Where all have reported and none has more than half, it is that of most, and of as many that of the lowest rank.
        """
        by_claim: dict[Value, list[int]] = {}
        for rank, (claim, _) in sorted(self._claims.items()):
            by_claim.setdefault(claim, []).append(rank)
        for claim in by_claim:
            if self.agreed(claim, training):
                return claim
        if not by_claim or not self._claims.keys() >= set(training):
            return None  # the others may yet report the same
        return max(by_claim, key=lambda claim: (len(by_claim[claim]), -by_claim[claim][0]))


class AgreedAccounts(Generic[Value, Account]):
    """Keeps an account for each claim; workers that claim the same have one together.

    Once a claim is settled, whoever claims another is to be refused (`take_refused`); where it stays, it shares the
    account of the others, and so cannot prolong a run.
    """

    def __init__(self, make: Callable[[Value], Account]) -> None:
        self._make = make
        self._majority: Majority[Value] = Majority()
        self._accounts: dict[Value, Account] = {}
        self._shared: dict[int, Account] = {}  # by rank
        self.settled: Value | None = None

    def report(self, rank: int, claim: Value, training: Collection[int]) -> Account:
        """Takes a claim of worker `rank`; returns the account that it shares: that of the settled claim, if there is
        one. Raises ValueError for a claim that cannot exist."""
        before = self._majority.claim_of(rank)
        self._majority.report(rank, claim)
        if self.settled is None:
            if claim not in self._accounts:
                self._accounts[claim] = self._make(claim)
            if before is not None and not self._majority.who(before):
                del self._accounts[before]  # or one worker could have any number of them
            self.settled = self._majority.settled(training)
        account = self._shared[rank] = self._accounts[claim if self.settled is None else self.settled]
        return account

    def of(self, rank: int) -> Account | None:
        """Returns the account of worker `rank`; None before its report."""
        return self._shared.get(rank)

    def of_most(self) -> Account | None:
        """Returns the account of the settled claim."""
        return None if self.settled is None else self._accounts[self.settled]

    def take_refused(self) -> list[tuple[int, Value]]:
        """Returns who claims another than what is settled, and what; their claims are forgotten."""
        if self.settled is None:
            return []
        refused = [(rank, self._majority.forget(rank)) for rank in self._majority.others(self.settled)]
        self._accounts = {self.settled: self._accounts[self.settled]}
        return refused

    def all(self) -> Collection[Account]:
        return self._accounts.values()
