"""Entries with their indices: bad indices are refused."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.codec import lookup


@pytest.mark.parametrize("name", ["topk", "dgc"])
def test_a_place_outside_is_refused_before_anything_is_written(name: str) -> None:
    data = np.array([0, 100], np.uint32).tobytes() + np.array([1, 2], np.float32).tobytes()
    out = np.full(100, 7, np.float32)
    with pytest.raises(ValueError, match="a place outside 100 numbers"):
        lookup(name)().decode(np.frombuffer(data, np.uint8), out)
    assert (out == 7).all()
