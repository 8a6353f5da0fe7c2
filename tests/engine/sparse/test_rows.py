"""Rows of a gradient: one that a batch has twice counts twice."""

from __future__ import annotations

import torch

from paceline.engine.sparse.rows import Rows


def test_a_row_that_a_batch_has_twice_counts_twice() -> None:
    table = torch.nn.Embedding(6, 2, sparse=True)
    (table(torch.tensor([4, 1, 4])).sum() * 3.0).backward()
    assert table.weight.grad is not None
    rows = Rows.of(table.weight.grad)
    assert rows.rows.tolist() == [1, 4]
    assert rows.matrix().tolist() == [[3.0, 3.0], [6.0, 6.0]]
