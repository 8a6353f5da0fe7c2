"""How the model of a run is cut over its servers."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core import sharding
from paceline.core.sharding import Layout
from paceline.job.recipe import Recipe
from paceline.live.control import Hello, Ready

PARAMETER_BYTES = 4


def lay_out(ready: Ready, servers: Sequence[Hello], *, slice_mb: float = 0.0) -> Layout:
    """Slices of about `slice_mb` MiB at most; 0, or a scheme that must not be cut further: a server's whole shard.

    Raises ConfigError when there are more servers than parameters.
    """
    whole = not slice_mb or Recipe.from_json(ready.optimizer).make_scheme().one_gate
    slice_length = 0 if whole else max(1, round(slice_mb * 2**20 / PARAMETER_BYTES))
    return sharding.lay_out(ready.length, len(servers), slice_length)
