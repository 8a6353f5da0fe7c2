"""What the evaluator makes of workers that are lost while it looks at them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.core.errors import PeerLost, Undone
from paceline.engine.buffers import Buffers
from paceline.engine.vector import Flat
from paceline.job.evaluator import statistics_of


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

    def peek(rank: int) -> Flat:
        if rank in lost:
            raise lost[rank]("gone")
        return Flat.copy_of(torch.full((4,), rank + 1.0))

    if expected is Undone:
        with pytest.raises(Undone):
            statistics_of(buffers, range(3), peek)
        return
    found = statistics_of(buffers, range(3), peek)
    assert (found and found.value().tolist()) == (expected and [pytest.approx(expected)] * 4)
