"""Goodput: what of the workers' capacity is in the model that is left at the end."""

from __future__ import annotations

import pytest

from paceline.core.trace import Applied, Decided, MemberChange, Record, Span
from paceline.observe.runs.goodput import Goodput


def of(records: list[Record], workers: int = 2, seconds: float = 10.0) -> float | None:
    goodput = Goodput()
    for record in records:
        goodput.add(record)
    return goodput.share(workers, seconds)


def step(rank: int, at: float, seconds: float = 1.0, samples: int = 8, exchanges: int = 0) -> Span:
    return Span(at=at, rank=rank, activity="computing", seconds=seconds, steps=1, samples=samples, exchanges=exchanges)


def update(at: float, *ranks: int, version: int, samples: int = 8, weight: float = 1.0, shard: int = 0) -> Applied:
    return Applied(at=at, shard=shard, ranks=ranks, version=version, staleness=0, weight=weight, samples=samples)


def test_it_is_computing_over_capacity_where_nothing_is_lost() -> None:
    records = [record for t in range(1, 6) for record in (step(0, t), update(t, 0, version=t))]
    assert of(records) == pytest.approx(5 / 20), "worker 1 was idle for ten seconds, worker 0 for five"


def test_an_update_of_several_counts_for_each_of_them() -> None:
    records = [step(0, 4, 4.0), step(1, 8, 8.0), update(8, 0, 1, version=1, samples=16)]
    assert of(records) == pytest.approx(12 / 20)


def test_what_was_dropped_or_is_in_no_update_is_no_goodput() -> None:
    records = [step(0, 1), update(1, 0, version=1), step(0, 2), update(2, 0, version=1, weight=0.0), step(0, 3)]
    assert of(records) == pytest.approx(1 / 20)
    assert of([*records, update(3, 0, version=1, shard=1)]) == pytest.approx(1 / 20), "other shards count the same"


def test_samples_are_dropped_once_however_many_shards_drop_them() -> None:
    goodput = Goodput()
    for record in (update(1, 0, 1, version=0, weight=0.0), update(1, 0, 1, version=0, weight=0.0, shard=1)):
        goodput.add(record)
    goodput.add(update(2, 0, version=1))
    assert goodput.dropped == 8


def test_a_sample_that_one_of_several_shards_drops_counts_by_the_part_of_the_model_that_lacks_it() -> None:
    goodput = Goodput()
    records = [update(1, 0, version=1, samples=12, weight=0.0, shard=1), update(1, 0, version=1, samples=12)]
    for record in records:
        goodput.add(record)
    assert goodput.dropped == 6, "nobody knows how long the shards are"
    goodput.slices = (30, 10)
    assert goodput.dropped == 3


def test_updates_that_servers_undid_are_no_goodput() -> None:
    records = [record for t in range(1, 5) for record in (step(0, t), update(t, 0, version=t))]
    replaced = MemberChange(at=5, party="server 0", event="replaced")
    again = [replaced, step(0, 6), update(6, 0, version=2)]
    assert of([*records, *again]) == pytest.approx(2 / 20), "versions 2 to 4 are undone, and the 2 is new"


def test_without_servers_what_follows_the_last_exchange_does_not_count() -> None:
    records = [step(0, 1), step(0, 2, exchanges=1), step(0, 3), step(0, 4, exchanges=1), step(0, 5)]
    assert of(records, workers=1) == pytest.approx(3 / 10)


def test_what_a_lost_worker_had_not_handed_over_is_lost_and_its_absence_too() -> None:
    lost = MemberChange(at=3, party="worker 0", event="lost")
    records: list[Record] = [step(0, 1), step(0, 2, exchanges=1), step(0, 3), lost, step(0, 8), step(0, 9, exchanges=1)]
    assert of(records, workers=1) == pytest.approx(2 / 10)


def test_a_worker_counts_from_when_it_joined_first_and_a_seat_that_nobody_took_not_at_all() -> None:
    def member(at: float, rank: int, event: str) -> MemberChange:
        return MemberChange(at=at, party=f"worker {rank}", event=event)

    first: list[Record] = [member(0, 0, "joined"), step(0, 10, 10.0), update(10, 0, version=1)]
    assert of(first, workers=3) == pytest.approx(1.0)
    late = [*first, member(6, 1, "returned"), step(1, 8, 2.0), update(8, 1, version=2)]
    assert of(late, workers=3) == pytest.approx(12 / 14)
    assert of([*late, member(8, 1, "lost"), member(9, 1, "returned")], workers=3) == pytest.approx(12 / 14)


def test_under_gossip_all_counts_but_what_lost_workers_trained() -> None:
    lost = MemberChange(at=4, party="worker 1", event="lost")
    assert of([step(0, 2), step(0, 3), step(1, 3), lost]) == pytest.approx(2 / 20)


def test_what_members_hand_to_their_speaker_is_in_the_model_once_servers_have_it() -> None:
    speaks = Decided(at=0, party="coordinator", rank=0, verdict="speaks for group 0", reason="the first of its group")
    records: list[Record] = [speaks, step(0, 1), step(1, 1), step(0, 2, exchanges=1), step(1, 2, exchanges=1)]
    assert of(records) == 0.0, "nothing has left the group"
    handed_over = [*records, update(3, 0, 1, version=1, samples=32)]
    assert of(handed_over) == pytest.approx(4 / 20)
    assert of([*handed_over, step(0, 4), step(0, 5, exchanges=1)]) == pytest.approx(4 / 20)


def test_before_the_first_exchange_nothing_is_in_a_model_that_is_not_a_mean_of_the_workers_own() -> None:
    goodput = Goodput()
    for record in (step(0, 1), step(0, 2)):
        goodput.add(record)
    assert goodput.share(1, 4.0) == pytest.approx(2 / 4)
    assert goodput.share(1, 4.0, gossip=False) == 0.0


def waited(rank: int, at: float, seconds: float = 0.0) -> Span:
    return Span(at=at, rank=rank, activity="waiting", seconds=seconds)


def counted(*records: Record) -> Goodput:
    goodput = Goodput()
    for record in records:
        goodput.add(record)
    return goodput


def test_the_last_exchange_counts_whether_or_not_its_driver_reports_it() -> None:
    trained = [waited(0, 0), waited(1, 0), step(0, 1), step(1, 1), step(0, 2)]
    made = counted(*trained, waited(0, 3, 1.0), waited(1, 3, 2.0))
    assert made.samples_in_model(gossip=False) == 24
    assert made.share(2, 4.0, gossip=False) == pytest.approx(3 / 8)
    alone = [Span(at=3, rank=rank, activity="computing", seconds=0.0, exchanges=1) for rank in (0, 1)]
    reported = counted(*trained, waited(0, 3, 1.0), waited(1, 3, 2.0), *alone)
    assert reported.samples_in_model(gossip=False) == 24


def test_a_mean_that_the_end_of_the_run_cut_off_does_not_count() -> None:
    cut = counted(waited(0, 0), waited(1, 0), step(0, 1), waited(0, 5, 4.0), step(1, 5, 5.0))
    assert cut.samples_in_model(gossip=False) == 0, "worker 1 was computing, so the mean was never made"
    assert cut.share(2, 5.0, gossip=False) == 0.0


def test_a_worker_that_was_lost_holds_up_no_last_exchange() -> None:
    lost = MemberChange(at=2, party="worker 1", event="lost")
    assert counted(step(0, 1), step(1, 1), lost, waited(0, 3)).samples_in_model(gossip=False) == 8


def test_a_run_that_trained_nothing_has_none() -> None:
    assert of([]) is None
    assert of([step(0, 1)], seconds=0.0) is None


def test_phases_with_and_without_servers_add_up_and_versions_may_begin_anew() -> None:
    first = [record for t in (1, 2) for record in (step(0, t), update(t, 0, version=t))]
    second = [record for t in (3, 4) for record in (step(0, t), update(t, 0, version=t - 2))]
    by_means = [step(0, 5), step(0, 6, exchanges=1), step(0, 7, exchanges=1), step(0, 8)]
    assert of([*first, *second], workers=1) == pytest.approx(4 / 10)
    assert of([*first, *by_means], workers=1) == pytest.approx(4 / 10), (
        "of the last phase two were handed over; two wait"
    )
