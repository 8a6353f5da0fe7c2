"""The benchmark of push and pull, on a small vector: it measures what it says."""

from __future__ import annotations

import pytest

from benchmarks import exchange
from paceline.live.segments import Segments


@pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")
def test_a_row_says_what_was_measured_against_which_limit() -> None:
    (row,) = exchange.measure(["shm"], {}, 100_000, 2)
    assert (row["transport"], row["bytes"], row["slice_mb"], row["claimed"]) == ("shm", 400_000, 0.0, 1.5)
    assert row["ratio"] == pytest.approx(row["seconds_median"] / row["seconds_limit"])
    assert row["seconds_limit"] > 0


def test_several_workers_make_a_round_together() -> None:
    with exchange.Paceline("tcp", 1000, workers=2, scheme="bsp") as job:
        assert len(job.exchange(3)) == 3
