"""What most workers report alike."""

from __future__ import annotations

from paceline.core.validation.majority import AgreedAccounts, Majority

ALL = {0, 1, 2, 3}


def test_more_than_half_of_those_that_train_or_report_the_same_agree() -> None:
    majority = Majority[str]()
    for rank in (0, 1):
        majority.report(rank, "end")
    assert not majority.agreed("end", ALL)
    assert majority.agreed("end", {0, 1, 2})
    assert not majority.agreed("end", {2, 3}), "they count, too, when they train no more"
    majority.report(3, "end")
    assert majority.agreed("end", ALL)


def test_the_last_report_of_a_worker_counts_and_an_old_one_does_not() -> None:
    majority = Majority[str](within_s=10.0)
    majority.report(0, "one", 0.0)
    majority.report(1, "one", 9.0)
    assert majority.agreed("one", {0, 1, 2}, 10.0)
    assert not majority.agreed("one", {0, 1, 2}, 11.0)
    majority.report(1, "other", 9.0)
    assert not majority.agreed("one", {0, 1, 2}, 10.0)


def test_nothing_is_settled_while_those_that_have_not_reported_may_change_it() -> None:
    majority = Majority[int]()
    majority.report(3, 7)
    majority.report(1, 5)
    assert majority.settled(ALL) is None
    majority.report(2, 5)
    assert majority.settled(ALL) is None
    majority.report(0, 5)
    assert majority.settled(ALL) == 5
    assert majority.others(5) == [3]


def test_of_as_many_the_lowest_rank_counts_once_all_have_reported() -> None:
    majority = Majority[int]()
    for rank, claim in ((3, 7), (2, 7), (1, 5)):
        majority.report(rank, claim)
    assert majority.settled(ALL) is None
    majority.report(0, 5)
    assert majority.settled(ALL) == 5


def test_workers_with_other_claims_share_nothing() -> None:
    accounts: AgreedAccounts[int, list[int]] = AgreedAccounts(lambda claim: [])
    accounts.report(3, 7, ALL).append(3)
    for rank in (0, 1):
        accounts.report(rank, 5, ALL).append(rank)
    assert accounts.take_refused() == []
    accounts.report(2, 5, ALL).append(2)
    assert accounts.take_refused() == [(3, 7)]
    assert (accounts.of_most(), accounts.take_refused()) == ([0, 1, 2], [])
    assert accounts.report(1, 7, {1}) == accounts.report(3, 9, {1}) == [0, 1, 2], "it stays settled, and all share it"
    assert sorted(accounts.take_refused()) == [(1, 7), (3, 9)]


def test_one_worker_has_one_account_at_a_time() -> None:
    accounts: AgreedAccounts[int, list[int]] = AgreedAccounts(lambda claim: [])
    for claim in range(100):
        accounts.report(3, claim, ALL)
    assert len(accounts.all()) == 1
