"""`paceline.kvstore.create` makes a key-value store by its type, wherever its servers are."""

from __future__ import annotations

import atexit
import dataclasses
from collections.abc import Sequence

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.compat.mxnet.api import KVStore
from paceline.compat.mxnet.distributed import DistributedStore
from paceline.compat.mxnet.local import LocalStore
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.launch.exit_hook import exit_if_too_late
from paceline.launch.join import find_spec, leave
from paceline.runtime.kvstore.store_spec import BOUND, SCHEMES, StoreSpec
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.single_process import sit_alone

LOCAL = ("local", "device", "nccl", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device")


def create(
    type: str = "local",
    *,
    staleness: int = 0,
    groups: Sequence[Sequence[int]] = (),
    bigarray_bound: int = BOUND,
    timeout_s: float = 0.0,
) -> KVStore:
    """Makes a store of this type: local, device, dist_sync, dist_device_sync, dist_async, dist_ssync or dist_gsync.

    MXNet's other names of the same types are known too (docs/kvstore.md). A `local` or `device` store is in this
    process. The others join a run, at the place that `paceline launch` sets in the environment.
    Without one this process is the only worker, and a thread of it is the server.

    `staleness` is for dist_ssync: how many pushes of a key a worker may be ahead of the slowest when it pulls that key.
    `groups` is for dist_gsync: the ranks of each group; by default all are in one. A key of `bigarray_bound` elements
    or more is divided among all servers. `timeout_s` bounds every wait; 0 takes that of the run (600).

    Raises ConfigError for an unknown type, with the nearest one, and for options that do not fit the type.
    """
    if type not in (*LOCAL, *SCHEMES):
        raise ConfigError(f"unknown type of store {type!r}{nearest(str(type), [*LOCAL, *SCHEMES])}")
    if timeout_s < 0:
        raise ConfigError(f"timeout_s = {timeout_s}: must be 0 or more seconds")
    if type in LOCAL:
        if staleness or groups:
            raise ConfigError(f"staleness and groups are for stores of several workers: leave them out of {type}")
        return LocalStore(type)
    store = StoreSpec(type=type, staleness=staleness, groups=tuple(map(tuple, groups)), bound=bigarray_bound)
    spec, end = find_spec()
    made = _distributed(spec, store, timeout_s)
    atexit.register(leave, made, end)
    return made


def _distributed(spec: ProcessSpec | None, store: StoreSpec, timeout_s: float) -> DistributedStore:
    store.check(spec.workers if spec else 1, spec.servers if spec else 1)
    if spec is None:
        spec, session = sit_alone(Recipe(scheme=store.scheme).make_scheme(), device="cpu", servers=1)
    else:
        spec = dataclasses.replace(spec, device="cpu")  # where what arrives is put; `pull` brings it to where `out` is
        session = spec.session(spec.open_transport())
        session.hello(spec.coordinator, spec.device)
    try:
        with exit_if_too_late(spec.party):
            return DistributedStore(spec, session, store, timeout_s=timeout_s or spec.timeout_s)
    except BaseException:
        session.close()  # a script that goes on without the store must keep no thread or socket of it
        raise
