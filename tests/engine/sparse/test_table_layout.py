"""Where tables lie in a vector."""

from __future__ import annotations

import pytest

from paceline.engine.sparse.table_layout import Tables, TableSpan


def test_tables_that_overlap_or_stick_out_are_refused() -> None:
    for places in ((TableSpan(0, 2, 2), TableSpan(3, 1, 1)), (TableSpan(8, 2, 2),), (TableSpan(0, 0, 2),)):
        with pytest.raises(ValueError, match="no tables"):
            Tables(10, places)
