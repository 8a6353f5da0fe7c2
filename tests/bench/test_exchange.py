"""A push and pull, on a small vector: it measures what it says."""

from __future__ import annotations

import pytest

from paceline.bench import exchange
from paceline.live.same_host.shared_memory import Segments


@pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")
def test_a_figure_says_what_was_measured_against_which_limit() -> None:
    (figure,) = exchange.measure([exchange.ExchangeJob(transport="shm", length=100_000)], 2)
    assert (figure.nbytes, figure.limit, figure.conditions["slice_mb"]) == (400_000, "a pass over memory", 0.0)
    assert figure.ratio == pytest.approx(figure.seconds_median / figure.seconds_limit)


def test_several_workers_make_a_round_together() -> None:
    with exchange.Running(exchange.ExchangeJob(transport="tcp", length=1000, workers=2, scheme="bsp")) as running:
        assert len(running.exchange(3)) == 3
        each = running.exchange_each(4)
    assert [len(seconds) for seconds in each] == [4, 4]
    assert min(map(min, each)) > 0
