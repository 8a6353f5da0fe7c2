"""A trace that is kept within a size."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from paceline.core.trace import Applied, Decided, Ended, Evaluated, Leased, LinkTraffic, Record, ResourceUse, Span
from paceline.observe.plots.timeline import bars
from paceline.observe.trace.compaction import Thinner, window_s
from paceline.observe.trace.trace_file import TraceWriter, read_trace
from paceline.observe.watch.state import PageState

MIB = 1 << 20


def rounds(count: int) -> list[Record]:
    """Two workers, one of them slow, a server that waits for it."""
    records: list[Record] = []
    for n in range(count):
        at = 0.1 * (n + 1)
        for rank, busy in ((0, 0.02), (1, 0.1)):
            begin = at - 0.1 + busy
            records.append(
                Span(at=begin, rank=rank, activity="computing", seconds=busy, steps=1, samples=8, exchanges=1)
            )
            if rank == 0:
                records.append(Decided(at=begin, party="server 0", rank=0, verdict="wait", reason="-", whom=(1,)))
            records.append(Span(at=at, rank=rank, activity="waiting", seconds=0.1 - busy))
        records.append(Applied(at=at, shard=0, ranks=(0, 1), version=n + 1, staleness=0, weight=1.0, samples=16))
        if n % 100 == 99:
            records.append(Evaluated(at=at, accuracy=0.5, loss=1.0, samples=16 * n, seconds=0.0))
    return [*records, Ended(at=0.1 * count, reason="steps")]


def written(path: Path, records: list[Record], bytes_max: int) -> list[Record]:
    with TraceWriter(path, bytes_max=bytes_max) as writer:
        for record in records:
            writer.append(record)
    return list(read_trace(path))


@pytest.fixture(scope="module")
def long_run() -> list[Record]:
    return rounds(10_000)


def test_a_long_trace_stays_within_its_size(long_run: list[Record], tmp_path: Path) -> None:
    written(tmp_path / "whole", long_run, 0)
    assert (tmp_path / "whole").stat().st_size > 4 * MIB
    written(tmp_path / "thin", long_run, MIB)
    assert MIB / 2 < (tmp_path / "thin").stat().st_size <= MIB


def test_no_second_step_or_sample_is_lost_and_no_evaluation(long_run: list[Record], tmp_path: Path) -> None:
    thin = written(tmp_path / "thin", long_run, MIB)
    for activity in ("computing", "waiting"):
        whole, kept = ([s for s in of if isinstance(s, Span) and s.activity == activity] for of in (long_run, thin))
        assert len(kept) < len(whole) / 2
        for field in ("seconds", "steps", "samples", "exchanges"):
            assert sum(getattr(s, field) for s in kept) == pytest.approx(sum(getattr(s, field) for s in whole))
    assert [r for r in thin if isinstance(r, Evaluated)] == [r for r in long_run if isinstance(r, Evaluated)]
    assert thin[-1] == long_run[-1]


def test_evaluations_and_leases_stay_within_it_too(tmp_path: Path) -> None:
    """The first that reached any accuracy is there still, and the last of all."""
    count = 40_000
    records: list[Record] = []
    for n in range(count):
        accuracy = (n - n % 100) / count - 0.1 * (n % 7 != 0)
        records.append(Evaluated(at=0.1 * n, accuracy=accuracy, loss=1.0, samples=n, seconds=0.01))
        counts = dict.fromkeys(("twice", "returned", "dropped", "undone", "left_out"), 0)
        records.append(Leased(at=0.1 * n, epochs=n // 10, done=n, **counts))
    records.append(Ended(at=0.1 * count, reason="steps"))
    thin = written(tmp_path / "thin", records, MIB)
    assert MIB / 2 < (tmp_path / "thin").stat().st_size <= MIB
    for target in (0.1, 0.5, 0.9):
        whole, kept = (
            next(r for r in of if isinstance(r, Evaluated) and r.accuracy >= target) for of in (records, thin)
        )
        assert kept == whole
    assert sorted(map(repr, thin[-3:])) == sorted(map(repr, records[-3:]))
    assert thin[-1] == records[-1]


def test_who_holds_back_much_leaves_room_for_it(tmp_path: Path) -> None:
    """A thousand workers: what is held back of each comes at the end of their windows."""
    records: list[Record] = [
        Span(at=float(n), rank=rank, activity=activity, seconds=0.5, steps=1, samples=8, exchanges=1)
        for n in range(10)
        for rank in range(1000)
        for activity in ("computing", "waiting")
    ]
    written(tmp_path / "thin", [*records, Ended(at=10.0, reason="steps")], MIB)
    assert (tmp_path / "thin").stat().st_size <= MIB


def test_what_is_read_from_it_is_the_same_story(long_run: list[Record], tmp_path: Path) -> None:
    whole, thin = PageState(2), PageState(2)
    whole.add_all(long_run)
    thin.add_all(written(tmp_path / "thin", long_run, MIB))
    one, other = whole.verdict.straggler, thin.verdict.straggler
    assert one is not None
    assert other is not None
    assert one.ranks == other.ranks == (1,)
    assert other.cost == pytest.approx(one.cost, rel=0.05)
    assert thin.workers[0].step_s == pytest.approx(whole.workers[0].step_s, rel=0.01)


def test_sums_lie_one_after_the_other_on_a_time_line(long_run: list[Record], tmp_path: Path) -> None:
    own = sorted(
        (bar for bar in bars(written(tmp_path / "thin", long_run, MIB)) if bar.rank == 0), key=lambda bar: bar.begin
    )
    assert all(before.end <= after.begin + 1e-6 for before, after in itertools.pairwise(own))


def test_everything_is_kept_up_to_half_of_the_size_and_windows_grow_from_there() -> None:
    at = (0, 49, 50, 74, 75, 88, 100, 120)
    assert [window_s(written, 100) for written in at] == [0, 0, 1, 1, 4, 16, 4**19, 4**19]


def test_of_what_is_used_the_last_is_kept_and_the_bytes_of_a_link_are_summed() -> None:
    thinner = Thinner(MIB)
    use = [ResourceUse(at=float(n), party="worker 1", memory_bytes=n, cores=1.0) for n in range(3)]
    links = [
        LinkTraffic(at=float(n), party="worker 1", other=f"server {server}", sent=1, received=2, seconds=2.0)
        for n in range(3)
        for server in range(2)
    ]
    kept = [*(k for record in sorted([*use, *links], key=lambda r: r.at) for k in thinner.within(record, 60.0))]
    kept += thinner.rest()
    assert [record for record in kept if isinstance(record, ResourceUse)] == use[-1:]
    assert [
        (link.other, link.at, link.sent, link.received, link.seconds) for link in kept if isinstance(link, LinkTraffic)
    ] == [("server 0", 2.0, 3, 6, 6.0), ("server 1", 2.0, 3, 6, 6.0)]
