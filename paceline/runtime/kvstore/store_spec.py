"""Describes what all workers of a distributed store have to agree on. Worker 0's spec goes to the servers.

`compat/mxnet` makes one of the arguments of `kvstore.create`; it travels within the recipe (`Recipe.store`).
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.errors import ConfigError

BOUND = 1_000_000
"""Elements from which on a key is cut over all servers: MXNet's MXNET_KVSTORE_BIGARRAY_BOUND."""

SCHEMES = {
    "dist_sync": "bsp",
    "dist_device_sync": "bsp",
    "dist_sync_device": "bsp",
    "dist": "bsp",
    "dist_async": "asp",
    "dist_async_device": "asp",
    "dist_device_async": "asp",
    "dist_ssync": "ssp",
    "dist_gsync": "gsp",
}
"""By MXNet's type of a store, the scheme that the servers apply to every key by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """Describes a store.

    type       one of SCHEMES
    staleness  of dist_ssync: how many pushes of a key a worker that pulls it may be ahead of the slowest
    groups     of dist_gsync: the ranks of each group; () for one group of all
    bound      elements from which on a key is cut over the servers
    """

    type: str
    staleness: int = 0
    groups: tuple[tuple[int, ...], ...] = ()
    bound: int = BOUND

    @property
    def scheme(self) -> str:
        """Returns the name of the scheme that the type stands for."""
        return SCHEMES[self.type]

    @property
    def needs_optimizer(self) -> bool:
        """Returns True if pushes need an optimizer. A sum of all workers may replace the stored value; less than that
        may not."""
        return self.scheme != "bsp"

    def check(self, workers: int, servers: int) -> None:
        """Raises ConfigError, naming the way out, for what does not go with so many workers and servers."""
        if not servers:
            raise ConfigError(f"{self.type} keeps its values on servers: `paceline launch -s 1` or more")
        if self.bound < 1:
            raise ConfigError(f"bigarray_bound = {self.bound}: must be 1 element or more")
        if self.staleness < 0:
            raise ConfigError(f"staleness = {self.staleness}: must be 0 or more")
        if self.staleness and self.scheme != "ssp":
            raise ConfigError(f"staleness is for dist_ssync: leave it out of {self.type}")
        if self.groups and self.scheme != "gsp":
            raise ConfigError(f"groups are for dist_gsync: leave them out of {self.type}")
        if self.groups and sorted(rank for group in self.groups for rank in group) != list(range(workers)):
            raise ConfigError(f"groups = {list(map(list, self.groups))}: every rank from 0 to {workers - 1}, each once")

    def partition(self, workers: int) -> tuple[tuple[int, ...], ...]:
        """Returns the groups of ranks whose pushes make one update together."""
        everybody = tuple(range(workers))
        if self.scheme == "bsp":
            return (everybody,)
        return (self.groups or (everybody,)) if self.scheme == "gsp" else tuple((rank,) for rank in everybody)
