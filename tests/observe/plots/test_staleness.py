"""The histogram of staleness counts contributions to one shard."""

from __future__ import annotations

from paceline.core.trace import Applied
from paceline.observe.plots import staleness
from tests.observe.plots.drawing import drawn, run, words


def test_staleness_is_a_share_of_the_contributions_to_one_shard() -> None:
    updates = [
        Applied(at=1.0, shard=shard, ranks=ranks, version=1, staleness=late, weight=1.0, samples=1)
        for shard in (0, 1)
        for ranks, late in (((0, 1, 2), 0), ((0,), 4))
    ]
    figure = staleness.staleness(drawn(run("asp", records=[*updates])))
    assert figure is not None
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in figure.axes[0].patches}
    assert heights == {0: 75.0, 4: 25.0}
    assert "mean 1.0, largest 4" in words(figure)
