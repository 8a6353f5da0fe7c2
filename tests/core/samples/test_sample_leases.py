"""The queue of leased samples: whatever happens to workers and servers, each sample of an epoch is done once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.core.effects import Data, Piece
from paceline.core.samples.sample_leases import APPLIED, LATE, REFUSED, Leases, SampleRanges, difference, joined

N = 40


def places(pieces: Data) -> set[tuple[int, int]]:
    return {(epoch, at) for epoch, start, stop in pieces for at in range(start, stop)}


pieces = st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(1, 8)).map(lambda p: (p[0], p[1], p[1] + p[2]))


@given(st.lists(st.tuples(st.booleans(), pieces), max_size=30), pieces)
def test_places_are_a_set(changes: list[tuple[bool, Piece]], asked: Piece) -> None:
    found, plain = SampleRanges(), set[tuple[int, int]]()
    for adds, piece in changes:
        if adds:
            found.add(piece)
            plain |= places((piece,))
        else:
            found.discard(piece)
            plain -= places((piece,))
        assert found.count == len(plain)
    assert places(tuple(found)) == plain
    assert sum(stop - start for _, start, stop in found) == len(plain)
    assert places(found.within(asked)) == plain & places((asked,))
    assert places(found.without(asked)) == places((asked,)) - plain
    assert found.of(0) + found.of(1) == found.count
    spans = list(found)
    assert list(joined(spans)) == spans == sorted(spans)  # none of them touch


def test_pieces_are_joined_and_taken_apart() -> None:
    assert joined([(0, 0, 4), (0, 4, 6), (0, 8, 9), (1, 9, 10)]) == ((0, 0, 6), (0, 8, 9), (1, 9, 10))
    assert difference((0, 0, 10), [(0, 2, 4), (0, 9, 10)]) == ((0, 0, 2), (0, 4, 9))


def test_epoch_follows_epoch_and_the_last_lease_of_one_is_what_is_left() -> None:
    leases = Leases(10, 4)
    assert [leases.take(0, 0) for _ in range(4)] == [(0, 0, 4), (0, 4, 8), (0, 8, 10), (1, 0, 4)]


def test_what_a_lost_worker_had_goes_to_others_but_not_what_still_waits_for_its_round() -> None:
    leases = Leases(12, 4)
    assert [leases.take(1, 0), leases.take(1, 0)] == [(0, 0, 4), (0, 4, 8)]
    leases.settled(1, APPLIED, ((0, 0, 2),))
    assert leases.leave(1, 0)
    leases.fenced(1, 0, ((0, 2, 4),))
    assert [leases.take(0, 0), leases.take(0, 0)] == [(0, 4, 8), (0, 8, 12)]
    leases.settled(1, APPLIED, ((0, 2, 4),))
    leases.settled(0, APPLIED, ((0, 4, 8), (0, 8, 12)))
    account = leases.account(1.0)
    assert (account.epochs, account.done, account.returned, account.twice) == (1, 12, 4, 0)


def test_a_later_life_of_a_worker_is_not_confused_with_the_one_that_is_fenced() -> None:
    leases = Leases(12, 4)
    assert leases.take(1, 0) == (0, 0, 4)
    leases.leave(1, 0)
    assert leases.take(1, 1) == (0, 4, 8)  # before the servers have answered
    leases.fenced(1, 0, ())
    assert leases.take(0, 0) == (0, 0, 4)
    leases.settled(1, APPLIED, ((0, 4, 8),))
    assert leases.account(0.0).returned == 4
    assert [*leases.unsettled()] == [(0, 0)]


def test_what_came_too_late_is_done_again_by_another_who_asks() -> None:
    leases = Leases(8, 4)
    assert leases.take(0, 0) == (0, 0, 4)
    leases.settled(0, LATE, ((0, 0, 1),))
    leases.settled(0, LATE, ((0, 1, 4),))
    assert leases.take(0, 0) == (0, 4, 8), "one that is always late would have them for ever"
    assert leases.take(1, 0) == (0, 0, 4)
    assert leases.account(0.0).dropped == 4
    assert leases.epochs == 0


def test_what_came_too_late_is_done_again_where_nobody_else_asks() -> None:
    leases = Leases(4, 4)
    leases.settled(0, LATE, (leases.take(0, 0),))
    assert [leases.take(0, 0) for _ in range(3)] == [(1, 0, 4), (0, 0, 4), (2, 0, 4)]


def test_samples_that_are_refused_twice_are_left_out() -> None:
    leases = Leases(4, 4)
    leases.take(0, 0)
    leases.settled(0, REFUSED, ((0, 0, 4),))
    assert leases.take(1, 0) == (0, 0, 4)
    leases.settled(1, APPLIED, ((0, 0, 2),))
    leases.settled(1, REFUSED, ((0, 2, 4),))
    account = leases.account(0.0)
    assert (account.epochs, account.done, account.dropped, account.left_out) == (1, 2, 4, 2)
    assert leases.take(1, 0) == (1, 0, 4)


def test_what_servers_do_not_know_any_more_is_done_again() -> None:
    leases = Leases(16, 4)
    for rank in (0, 1):
        leases.take(rank, 0)
        leases.settled(rank, APPLIED, ((0, 4 * rank, 4 * rank + 2),))
    leases.settled(0, APPLIED, ((0, 2, 4),))
    leases.settled(1, LATE, ((0, 6, 8),))
    leases.restored(((0, 0, 2),))
    account = leases.account(0.0)
    assert (account.done, account.undone, account.dropped) == (2, 4, 2)
    assert [leases.take(0, 0), leases.take(0, 0)] == [(0, 2, 6), (0, 6, 8)]
    leases.settled(0, APPLIED, ((0, 2, 6), (0, 6, 8)))
    account = leases.account(0.0)
    assert (account.done, account.twice) == (8, 0)


def test_a_worker_that_claims_what_it_has_given_back_takes_it_from_nobody() -> None:
    leases = Leases(8, 4)
    leases.take(0, 0)
    leases.settled(0, LATE, ((0, 0, 4),))
    leases.settled(0, APPLIED, ((0, 0, 4),))  # the claim of a worker that lies
    assert leases.take(1, 0) == (0, 0, 4)
    leases.settled(1, APPLIED, ((0, 0, 4),))
    account = leases.account(0.0)
    assert (account.done, account.twice) == (4, 4)


def test_what_servers_know_and_never_told_is_done() -> None:
    leases = Leases(8, 4)
    leases.take(0, 0)
    leases.restored(((0, 0, 3),))
    leases.past(0, 0, 4)
    assert leases.take(1, 0) == (0, 3, 4)
    assert leases.account(0.0).done == 3


def test_a_run_that_goes_on_begins_with_what_is_not_done() -> None:
    leases = Leases(10, 4, done=((0, 0, 10), (1, 0, 4), (1, 8, 10)))
    assert leases.epochs == 1
    assert [leases.take(0, 0), leases.take(0, 0)] == [(1, 4, 8), (2, 0, 4)]
    assert leases.reached(16)
    assert not leases.reached(17)


def test_so_much_is_reached_once_the_whole_epochs_in_it_are_done() -> None:
    leases = Leases(4, 2)
    for _ in range(4):
        leases.take(0, 0)
    leases.settled(0, APPLIED, ((0, 2, 4), (1, 0, 4)))
    assert not leases.reached(4)  # six are done, but not those of the first epoch
    leases.settled(0, APPLIED, ((0, 0, 2),))
    assert leases.reached(8)


@pytest.mark.parametrize("piece", [(0, 0, 5), (0, 3, 3), (2, 0, 1), (-1, 0, 1), (0, -1, 2)])
def test_samples_that_were_given_to_nobody_are_refused(piece: Piece) -> None:
    leases = Leases(4, 4)
    leases.take(0, 0)
    with pytest.raises(ValueError, match="were given to nobody"):
        leases.settled(0, APPLIED, (piece,))


class Servers(RuleBasedStateMachine):
    """A run: workers push what they have in order, servers tell what became of it, and either may be lost.

    The first server keeps rounds open, and is restored from what it was some time before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases(N, 6)
        self.incarnations = {0: 0, 1: 0, 2: 0}
        self.has: dict[int, list[Piece]] = {rank: [] for rank in self.incarnations}
        self.handed = dict.fromkeys(self.incarnations, 0)
        self.rounds: list[tuple[int, Data]] = []  # contributions that wait for their round
        self.done: set[tuple[int, int]] = set()
        self.kept: set[tuple[int, int]] = set()
        self.asked: list[tuple[int, int, Data]] = []  # answers to Fence that are under way

    @rule(rank=st.integers(0, 2))
    def a_worker_is_given_a_lease(self, rank: int) -> None:
        self.has[rank].append(self.leases.take(rank, self.incarnations[rank]))

    @precondition(lambda self: any(self.has.values()))
    @rule(data=st.data())
    def a_worker_pushes(self, data: st.DataObject) -> None:
        rank = data.draw(st.sampled_from([rank for rank, has in self.has.items() if has]))
        epoch, start, stop = self.has[rank].pop(0)
        cut = data.draw(st.integers(start + 1, stop))
        if cut < stop:
            self.has[rank].insert(0, (epoch, cut, stop))
        self.handed[rank] += cut - start
        pushed: Data = ((epoch, start, cut),)
        fate = data.draw(st.sampled_from([APPLIED, LATE, "round"]))
        if fate == "round":
            self.rounds.append((rank, pushed))
        else:
            self._settle(rank, fate, pushed)

    def _settle(self, rank: int, fate: str, pushed: Data) -> None:
        if fate == APPLIED:
            assert not self.done & places(pushed), "a sample is applied twice"
            self.done |= places(pushed)
        self.leases.settled(rank, fate, pushed)

    @rule()
    def a_round_is_complete(self) -> None:
        rounds, self.rounds = self.rounds, []
        for rank, pushed in rounds:
            self._settle(rank, APPLIED, pushed)

    @rule(rank=st.integers(0, 2))
    def a_worker_is_lost(self, rank: int) -> None:
        incarnation = self.incarnations[rank]
        if self.leases.leave(rank, incarnation):
            self.asked.append((rank, incarnation, tuple(p for src, data in self.rounds if src == rank for p in data)))
        self.incarnations[rank], self.has[rank], self.handed[rank] = incarnation + 1, [], 0

    @precondition(lambda self: self.asked)
    @rule()
    def the_servers_answer(self) -> None:
        """What it waited for meanwhile was told before the answer, which is made when it is asked."""
        rank, incarnation, _ = self.asked.pop(0)
        self.leases.fenced(rank, incarnation, tuple(p for src, data in self.rounds if src == rank for p in data))

    @rule()
    def a_snapshot_is_kept(self) -> None:
        self.kept = set(self.done)

    @rule()
    def a_server_is_lost(self) -> None:
        """What is under way is void; workers say how far they are; whoever is gone is asked about once more."""
        self.done, self.rounds, self.asked = set(self.kept), [], []
        self.leases.restored(tuple((epoch, at, at + 1) for epoch, at in sorted(self.done)))
        for rank, incarnation in list(self.leases.unsettled()):
            if self.incarnations[rank] != incarnation:
                self.asked.append((rank, incarnation, ()))
        for rank, incarnation in self.incarnations.items():
            self.leases.past(rank, incarnation, self.handed[rank])

    @invariant()
    def the_account_is_that_of_the_servers(self) -> None:
        account = self.leases.account(0.0)
        assert account.done == len(self.done)
        assert account.twice == 0

    def teardown(self) -> None:
        """Nothing gets lost: whoever is left can finish the first epochs."""
        self.a_round_is_complete()
        while self.asked:
            self.the_servers_answer()
        for _ in range(1000):
            if self.leases.epochs >= 3:
                break
            rank = min(self.has, key=lambda rank: len(self.has[rank]) == 0)
            if not self.has[rank]:
                self.a_worker_is_given_a_lease(rank)
            self._settle(rank, APPLIED, (self.has[rank].pop(0),))
        assert self.leases.epochs >= 3
        assert {(epoch, at) for epoch in range(3) for at in range(N)} <= self.done


Servers.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestServers = Servers.TestCase
