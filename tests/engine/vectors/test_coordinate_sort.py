from __future__ import annotations

import pytest
import torch

from paceline.engine.vectors.coordinate_sort import BLOCK, Sorting
from paceline.engine.vectors.flat import Flat


@pytest.mark.parametrize("length", [1, BLOCK, BLOCK + 3])
@pytest.mark.parametrize(("n", "cut"), [(5, 0), (5, 1), (5, 2), (8, 3), (1, 0)])
def test_what_is_left_of_each_coordinate_is_averaged(length: int, n: int, cut: int) -> None:
    numbers = torch.randn(n, length, generator=torch.Generator().manual_seed(n))
    got = Sorting().trimmed([Flat.wrap(row.clone() * 2) * 0.5 for row in numbers], cut)
    kept = numbers.sort(dim=0).values[cut : n - cut]
    torch.testing.assert_close(got.value(), kept.mean(dim=0))
    assert torch.equal(
        Sorting().trimmed([Flat.wrap(row.clone()) for row in numbers], (n - 1) // 2).value()[:1],
        (
            numbers[:, :1].median(dim=0).values
            if n % 2
            else numbers[:, :1].sort(dim=0).values[n // 2 - 1 : n // 2 + 1].mean(0)
        ),
    )
