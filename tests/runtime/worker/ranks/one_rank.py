"""A process group of this process alone, of which nothing is left afterwards."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


@contextlib.contextmanager
def process_group_alone(folder: Path) -> Iterator[Any]:
    """Yields a Gloo group, which meets by a file in this folder.

    Torch keeps groups in a cache of its sharded tensors, one for each thread. A process that another thread forks
    later, such as one of a DataLoader, would wait for ever for the threads of the group, which it does not have.
    """
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=0, world_size=1)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()
        clear = getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", None)
        if clear is not None:
            clear()
        gc.collect()
