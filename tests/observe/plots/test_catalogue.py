"""Which figures there are of given runs."""

from __future__ import annotations

from paceline.observe.plots.catalogue import PLATES
from tests.observe.plots.drawing import drawn, run


def test_what_the_runs_do_not_have_is_no_figure() -> None:
    bare = drawn(run("bsp", records=[], bytes_up=0, bytes_down=0, seconds_to_target=None, test_accuracy=None))
    assert {p.name for p in PLATES if p.draw(bare) is None} == {
        "accuracy-time", "accuracy-exchange", "accuracy-samples", "target", "traffic", "staleness"
    }  # fmt: skip
