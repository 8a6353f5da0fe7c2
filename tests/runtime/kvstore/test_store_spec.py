"""What workers of a store agree on, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.runtime.kvstore.store_spec import StoreSpec


@pytest.mark.parametrize(
    ("spec", "servers", "words"),
    [
        ({"type": "dist_sync"}, 0, "dist_sync keeps its values on servers: `paceline launch -s 1` or more"),
        ({"type": "dist_sync", "bound": 0}, 1, "bigarray_bound = 0: must be 1 element or more"),
        ({"type": "dist_ssync", "staleness": -1}, 1, "staleness = -1: must be 0 or more"),
        ({"type": "dist_async", "staleness": 2}, 1, "staleness is for dist_ssync"),
        ({"type": "dist_sync", "groups": ((0,), (1,), (2,))}, 1, "groups are for dist_gsync"),
        ({"type": "dist_gsync", "groups": ((0, 1),)}, 1, "every rank from 0 to 2, each once"),
        ({"type": "dist_gsync", "groups": ((0, 1), (1, 2))}, 1, "every rank from 0 to 2, each once"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_way_out(spec: dict[str, Any], servers: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        StoreSpec(**spec).check(workers=3, servers=servers)


@pytest.mark.parametrize(
    ("spec", "partition", "needs_optimizer"),
    [
        ({"type": "dist_sync"}, ((0, 1, 2),), False),
        ({"type": "dist_device_sync"}, ((0, 1, 2),), False),
        ({"type": "dist_async"}, ((0,), (1,), (2,)), True),
        ({"type": "dist_ssync", "staleness": 3}, ((0,), (1,), (2,)), True),
        ({"type": "dist_gsync"}, ((0, 1, 2),), True),
        ({"type": "dist_gsync", "groups": ((2,), (0, 1))}, ((2,), (0, 1)), True),
    ],
)
def test_pushes_of_a_part_make_one_update(
    spec: dict[str, Any], partition: tuple[tuple[int, ...], ...], needs_optimizer: bool
) -> None:
    store = StoreSpec(**spec)
    store.check(workers=3, servers=1)
    assert store.partition(3) == partition
    assert store.needs_optimizer is needs_optimizer
