"""Stores of several workers, all threads of this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.compat.mxnet.distributed import DistributedStore
from paceline.kvstore import KVStore
from paceline.runtime.kvstore.store_spec import StoreSpec
from paceline.runtime.worker.single_process import sit_together


def run(
    work: Callable[[KVStore], Any],
    type: str = "dist_sync",
    *,
    workers: int = 2,
    servers: int = 2,
    timeout_s: float = 20.0,
    **options: Any,
) -> list[Any]:
    """What `work` returns on each worker, by rank; raises what it raises on the first that fails."""
    store = StoreSpec(type=type, **options)
    store.check(workers, servers)

    def incarnation(spec: Any, session: Any) -> Any:
        with DistributedStore(spec, session, store, timeout_s=timeout_s) as kv:
            return work(kv)

    with ThreadPoolExecutor(workers) as pool:
        incarnations = [pool.submit(incarnation, spec, session) for spec, session in sit_together(workers, servers)]
        return [one.result(60.0) for one in incarnations]
