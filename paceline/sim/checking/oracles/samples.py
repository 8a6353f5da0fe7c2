"""Recounts leased samples: at the end each is in one update, waits in a round, or can be leased again.

A place is one position in the order of one epoch. The oracle notes which places were given out, and compares that
at the end with the updates of the first shard (`ShardRecount.done`) and with what the queue still hands out. An epoch
counts as whole no sooner than each of its places has been in an update, of which a later loss may undo some.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Container

from paceline.core.effects import Data, Piece
from paceline.core.samples.sample_leases import Leases
from paceline.sim.checking.oracles.contributions import Place, ShardRecount, places

NOBODY = -1
"""A rank that takes what is left when all others are gone."""


class Samples:
    """Notes which places of a run were given out. `broken` makes the error of a violation."""

    def __init__(self, broken: Callable[[str], AssertionError]) -> None:
        self._broken = broken
        self._resumed = False  # then what nobody has of an epoch that had begun is given out as if given back
        self._given: set[Place] = set()
        self._former: list[ShardRecount] = []  # of the first server, in its earlier incarnations
        self._epochs = 0  # the most that counted as whole

    def given(self, piece: Piece) -> None:
        """Notes that a worker took a lease."""
        self._given.update(places((piece,)))

    def given_before(self, done: Data) -> None:
        """Notes samples that are in the checkpoint from which the run is resumed: nobody may have them again."""
        self._given.update(places(done))
        self._resumed = True

    def replaced(self, before: ShardRecount) -> None:
        """Notes what the first server had counted before it became what a copy or a snapshot says."""
        self._former.append(before)

    def counted(self, leases: Leases, first: ShardRecount) -> None:
        """Takes the account when it has changed: every place of the whole epochs has been in an update, some time.

        first: recount of the first shard, as it is now.
        """
        if leases.epochs <= self._epochs:
            return
        recounts = (*self._former, first)
        ever = {place for recount in recounts for data in recount.done for place in places(data)}
        for epoch in range(self._epochs, leases.epochs):
            missing = [at for at in range(leases.samples) if (epoch, at) not in ever]
            if len(missing) > leases.account(0.0).left_out:
                raise self._broken(f"epoch {epoch} counts as whole, and its sample {missing[0]} was in no update yet")
        self._epochs = leases.epochs

    def all_is_accounted_for(
        self,
        leases: Leases,
        first: ShardRecount,
        done: Data,
        may_be_left_out: Callable[[Place], bool] = lambda place: False,
    ) -> None:
        """Checks the samples when everybody has left.

        first: recount of the first shard. done: what its role says is applied. may_be_left_out: says of which samples
        two bad results were made.
        """
        often = Counter(place for data in first.done for place in places(data))
        for place, count in often.items():
            if count > 1:
                raise self._broken(f"sample {place} is in {count} updates of the model")
        if set(places(done)) != set(often):
            wrong = sorted(set(places(done)).symmetric_difference(often))
            raise self._broken(f"the first server is wrong about sample {wrong[0]}: in the model or not")
        account = leases.account(0.0)
        if account.done != len(often):
            raise self._broken(f"{account.done} samples count as done; {len(often)} are in the model")
        whole = next(epoch for epoch in itertools.count() if self._is_open(epoch, leases, often))
        if account.epochs != whole and not account.left_out:
            raise self._broken(f"{account.epochs} epochs count as whole; {whole} are")
        if account.twice:
            raise self._broken(f"{account.twice} samples count as done twice, and none is")
        waiting = {place for own in first.open.values() for of in own for place in places(of.data)}
        left_out = self._look_at_the_rest(leases, self._given - set(often) - waiting)
        for place in sorted(left_out):
            if not may_be_left_out(place):
                raise self._broken(f"sample {place} is in no update, and nobody can have it any more")
        if len(left_out) > account.left_out:
            raise self._broken(f"{account.left_out} samples count as left out; {len(left_out)} are")

    @staticmethod
    def _is_open(epoch: int, leases: Leases, done: Container[Place]) -> bool:
        """Returns True if a place of that epoch is not among `done`."""
        return any((epoch, at) not in done for at in range(leases.samples))

    def _look_at_the_rest(self, leases: Leases, rest: set[Place]) -> set[Place]:
        """Takes every lease that is left, and checks that it is what is in no update, each place once.

        Returns what is in no update and in no lease.
        """
        last_epoch = max((epoch for epoch, _ in self._given), default=-1) if self._resumed else -1
        while True:
            piece = leases.take(NOBODY, 0)
            if self._given.isdisjoint(places((piece,))) and piece[0] > last_epoch:
                break
            for place in places((piece,)):
                if place not in rest and (place in self._given or not self._resumed):
                    raise self._broken(f"sample {place} is given out again; it is in the model, or somebody has it")
                rest.discard(place)
        return rest
