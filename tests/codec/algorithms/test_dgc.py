"""DGC: the warm-up of its ratio, and its momentum correction."""

from __future__ import annotations

import numpy as np

from paceline.codec import ResidualMemory, lookup
from tests.codec.algorithms.coding import decoded, encoded


def test_dgc_warms_up_from_a_quarter_to_its_ratio() -> None:
    codec = lookup("dgc")(ratio=0.25**5, warmup=4)
    assert [codec.size(1 << 20, nth) // 8 for nth in range(6)] == [1 << 18, 1 << 16, 1 << 14, 1 << 12, 1 << 10, 1 << 10]


def test_dgc_corrects_momentum_and_forgets_it_where_it_sent() -> None:
    """Algorithm 4 by hand: u <- m u + g, r <- r + u, both zero where sent."""
    codec, memory = lookup("dgc")(ratio=0.25, momentum=0.5, warmup=0), ResidualMemory.of(4)
    g = np.array([4, 3, 0, 0], np.float32)
    sent = [decoded(codec, encoded(codec, g, memory), 4).tolist() for _ in range(2)]
    assert sent == [[4, 0, 0, 0], [0, 7.5, 0, 0]]
    assert memory.left.tolist() == [4, 0, 0, 0]
