"""randomk draws the same entries on all workers."""

from __future__ import annotations

import numpy as np

from paceline.codec import ResidualMemory, lookup
from tests.codec.algorithms.coding import decoded, encoded


def test_randomk_sends_other_places_every_time_and_workers_send_the_same() -> None:
    codec, one, other = lookup("randomk")(ratio=0.1), ResidualMemory.of(1000), ResidualMemory.of(1000)
    g = np.arange(1, 1001, dtype=np.float32)
    first = decoded(codec, encoded(codec, g, one), 1000)
    second = decoded(codec, encoded(codec, g, one), 1000)
    assert np.count_nonzero(first) == np.count_nonzero(second) == 100
    assert np.flatnonzero(first).tolist() != np.flatnonzero(second).tolist()
    assert decoded(codec, encoded(codec, g, other), 1000).tolist() == first.tolist()
