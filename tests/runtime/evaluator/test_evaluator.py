"""What the evaluator makes of workers that are lost while it looks at them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.core.errors import PeerLost, Undone
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.vectors.flat import Flat
from paceline.live.node.published_state import PublishedState
from paceline.runtime.evaluator.evaluator import statistics_of


@pytest.mark.parametrize(
    ("policy", "lost", "expected"),
    [
        ("average", {}, 2.0),
        ("average", {0: PeerLost}, 2.5),
        ("average", {0: PeerLost, 1: PeerLost, 2: PeerLost}, None),
        ("average", {1: Undone}, Undone),
        ("local", {}, 1.0),
        ("local", {0: PeerLost}, 2.0),
    ],
)
def test_statistics_are_of_those_workers_that_are_not_lost_meanwhile(
    policy: str, lost: dict[int, type[PeerLost]], expected: float | type[PeerLost] | None
) -> None:
    buffers = Buffers(nn.BatchNorm1d(2), policy)

    def read_state(rank: int) -> PublishedState:
        if rank in lost:
            raise lost[rank]("gone")
        return PublishedState(v=statistics(rank + 1.0, 10), weight=100.0)

    if expected is Undone:
        with pytest.raises(Undone):
            statistics_of(buffers, range(3), read_state)
        return
    found = statistics_of(buffers, range(3), read_state)
    assert (found and found.value()[:4].tolist()) == (expected and [pytest.approx(expected)] * 4)


def statistics(value: float, batches: int) -> Flat:
    """Of two channels, after so many batches."""
    return Flat.copy_of(torch.tensor([value] * 4 + [0.0, float(batches)]))


def test_statistics_count_by_the_samples_of_each_worker() -> None:
    module = nn.BatchNorm1d(2)
    buffers = Buffers(module)
    shown = [PublishedState(v=statistics(1.0, 30), weight=300.0), PublishedState(v=statistics(5.0, 10), weight=100.0)]
    found = statistics_of(buffers, range(2), shown.__getitem__)
    assert found is not None
    buffers.load(found)
    assert module.running_mean is not None
    assert module.running_mean.tolist() == [2.0, 2.0]
    assert int(module.num_batches_tracked or 0) == 40
