"""Figures say in tables what they show."""

from __future__ import annotations

from paceline.core.trace import Applied, Record
from paceline.observe.plots import figure_numbers
from paceline.observe.plots.catalogue import PLATES, timelines
from tests.observe.plots.drawing import drawn, run, spans


def test_each_figure_that_is_drawn_has_a_row_for_each_run() -> None:
    there = drawn(run("bsp"), run("esync"))
    for plate in PLATES:
        if plate.draw(there) is not None:
            head, rows = plate.numbers(there)
            assert {cell.split(",")[0] for cell, *_ in rows} == {"bsp", "esync"}, plate.name
            assert all(len(row) == len(head) for row in rows)


def test_a_curve_is_said_at_its_quarters() -> None:
    (entry,) = drawn(run("bsp"))
    _, [(name, *cells)] = figure_numbers.of_accuracy([entry], "time")
    last = entry.digests[0].evaluations[-1]
    assert name == "bsp"
    assert len(cells) == 4
    assert cells[-1].startswith(f"{last.accuracy:.3f} at ")


def test_of_several_seeds_each_has_a_row_and_bars_have_their_mean() -> None:
    there = drawn(run("bsp", 0), run("bsp", 1))
    assert [name for name, *_ in figure_numbers.of_accuracy(there, "samples")[1]] == ["bsp, seed 0", "bsp, seed 1"]
    (row,) = figure_numbers.of_throughput(there)[1]
    assert row[-1] == "2 of 2"


def test_staleness_has_mean_largest_and_what_was_fresh() -> None:
    late: list[Record] = [
        Applied(at=float(n), shard=0, ranks=(0,), version=n, staleness=n, weight=1.0, samples=8) for n in range(4)
    ]
    assert figure_numbers.of_staleness(drawn(run("asp", records=late)))[1] == [("asp", "1.5", "3", "25%")]


def test_a_timeline_says_what_each_worker_did_in_its_seconds() -> None:
    there = drawn(run("bsp", records=spans(4)))
    (plate,) = timelines(there)
    head, rows = plate.numbers(there)
    until = there[0].digests[0].until
    assert head[0].startswith("in the first ")
    assert [row[0] for row in rows] == [f"worker {rank}" for rank in range(4)]
    assert {row[1] for row in rows} == {f"{int(until)}"}
