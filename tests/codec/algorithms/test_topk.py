"""topk sends the largest entries."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.codec import lookup
from tests.codec.algorithms.coding import encoded


@settings(max_examples=60)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.floats(0.01, 0.5))
def test_topk_sends_the_largest_and_of_equal_ones_the_first(numbers: list[int], ratio: float) -> None:
    g, codec = np.array(numbers, np.float32), lookup("topk")(ratio=ratio)
    data = encoded(codec, g)
    k = len(data) // 8
    best = sorted(range(len(g)), key=lambda i: (-abs(g[i]), i))[:k]
    assert data[: 4 * k].view(np.uint32).tolist() == sorted(best)
    assert data[4 * k :].view(np.float32).tolist() == [g[i] for i in sorted(best)]
