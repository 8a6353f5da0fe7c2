"""Accuracy by exchanges, by samples, and by how data are dealt out."""

from __future__ import annotations

from paceline.observe.plots import curves
from tests.observe.plots.drawing import drawn, run


def test_accuracy_by_exchange_counts_those_of_a_worker_and_by_samples_those_of_all() -> None:
    [entry] = drawn(run("bsp"))
    by_exchange, by_samples = (curves.accuracy([entry], by=by).axes[0].lines[0] for by in ("exchange", "samples"))
    assert list(by_exchange.get_xdata()) == list(range(11))
    assert list(by_samples.get_xdata()) == [1000 * n for n in range(11)]


def test_data_dealt_out_in_another_way_have_a_panel_of_their_own() -> None:
    by_class = {"facts": {"data.partition": "class"}}
    figure = curves.accuracy(drawn(run("bsp"), run("bsp", **by_class)), by="time")
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "partition uniform: i.i.d.",
        "partition class: not i.i.d.",
    ]
