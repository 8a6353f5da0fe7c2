"""How workers spent their time, for any number of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from paceline.observe.plots import time_shares
from paceline.observe.plots.catalogue import ROWS_MAX, chosen, timelines
from paceline.observe.runs.run_folders import RunFolder
from tests.observe.fake_runs import summary, worker
from tests.observe.plots.drawing import drawn, spans


def test_a_thousand_workers_become_a_line_and_the_ends_of_a_timeline() -> None:
    many = tuple(worker(rank, rank % 10 / 20, steps=1 + rank, seconds_computing=5.0) for rank in range(1000))
    [entry] = drawn(RunFolder(path=Path("k"), summary=replace(summary(), workers=many), records=lambda: spans(1000)))
    figure = time_shares.computing([entry])
    assert figure is not None
    ys = list(figure.axes[0].lines[0].get_ydata())
    assert len(ys) == 1000
    assert ys == sorted(ys)
    ranks = chosen(entry.digests[0])
    assert len(ranks) == ROWS_MAX
    assert ranks == [*range(ROWS_MAX // 2), *range(1000 - ROWS_MAX // 2, 1000)]
    [plate] = timelines([entry])
    assert plate.draw([entry]) is not None
