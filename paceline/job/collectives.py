"""`Mean` carried by torch.distributed: Gloo, MPI where torch has it, NCCL where every member has its own GPU.

A mean is two all-reduces: the weights first, which is where a fast worker waits for the slow ones, then the vectors,
which is communication; so the trace can tell the two apart. Means that are under way at the same time run in the order
in which they were begun, which must be the same on every worker; the first all-reduce tells if it is not. A worker that
has left keeps taking part with weight zero until everybody has (`drain`), so nobody hangs on uneven work.

The rendezvous is a file of the run's own folder and the group binds to the loopback address: torch's TCPStore would
listen on every interface.
"""

from __future__ import annotations

import datetime
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paceline.core.effects import Mean
from paceline.core.errors import ConfigError, PeerLost, ProtocolError
from paceline.core.mean import Averaged
from paceline.engine.pool import spare
from paceline.engine.vector import Flat, FlatMemory
from paceline.job import sockets
from paceline.live.pending import Pending

torch_distributed: Any = dist  # parts of it carry no types

NAMES = 1 << 16
"""A mean is told from others by a number below; the sum of its square over a million workers is exact in float64."""


def own_gpus(devices: Sequence[str]) -> bool:
    """Has every worker a GPU of its own?"""
    return len(set(devices)) == len(devices) > 0 and all(device.startswith("cuda:") for device in devices)


class CollectiveCarrier:
    """One process group over all workers; means run one after the other on a thread of their own."""

    def __init__(
        self,
        backend: str,
        rank: int,
        workers: int,
        *,
        rendezvous: str,
        device: torch.device,
        timeout_s: float,
    ) -> None:
        """Blocks until all `workers` are there, for `timeout_s` at most."""
        store: Any = torch_distributed.FileStore(str(Path(rendezvous) / "collectives"), workers)
        self._device, self._everybody = device, tuple(range(workers))
        before = sockets.open_sockets()
        self._group = _group(backend, store, rank, workers, timeout_s)
        self._sockets = sockets.open_sockets() - before
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mean")

    def begin(self, effect: Mean) -> Pending:
        """Raises ConfigError for a mean that is not over all workers."""
        if tuple(sorted(effect.among)) != self._everybody:
            raise ConfigError(
                f"{effect.tag} is a mean among {len(effect.among)} of {len(self._everybody)} workers, and all-reduce "
                "carries means over all of them: give --servers 1 or more, and --mean servers"
            )
        pending = Pending(f"Mean {effect.tag} over all workers", 1, FlatMemory())
        self._thread.submit(self._carry, effect, pending)
        return pending

    def drain(self) -> None:
        """Take part without contributing until nobody contributes any more."""
        try:
            while self._thread.submit(self._take_part).result():
                pass
        except RuntimeError as error:
            raise PeerLost(f"a worker went away while the others were leaving: {error}") from None

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received by the group, as the kernel counted them at its sockets."""
        return sockets.traffic(self._sockets)

    def close(self) -> None:
        self._thread.shutdown()

    def _carry(self, effect: Mean, pending: Pending) -> None:
        try:
            pending.put(0, *self._mean(effect))
        except ProtocolError as error:
            pending.fail(error)
        except RuntimeError as error:
            pending.fail(PeerLost(f"{pending.what} failed: {error}"))

    def _mean(self, effect: Mean) -> tuple[Averaged, float]:
        """The mean and the seconds its vectors took."""
        v: Any = effect.v
        weight, name = effect.weight, f"{effect.tag} of {len(v)} numbers"
        weights, _, _, one_mean = self._announce(weight, 1, len(v), zlib.crc32(name.encode()) % NAMES)
        if not one_mean:
            raise ProtocolError(f"this worker's next mean is {name}, and another's is a different one")
        began = time.monotonic()
        mean = spare(len(v), self._device)
        (v * (weight / weights if weights else 0.0)).copy_into(mean)
        if weights:
            self._sum(mean)
        return Averaged(v=Flat(mean), weight=weights), time.monotonic() - began

    def _take_part(self) -> bool:
        """Add nothing to the mean of those that are left, however long their vectors are; False if nobody is left."""
        weights, members, lengths, one_mean = self._announce(0.0, 0, 0, 0)
        if weights and one_mean:
            self._sum(torch.zeros(lengths // members, device=self._device))
        return members > 0

    def _announce(self, weight: float, members: int, length: int, name: int) -> tuple[float, int, int, bool]:
        """What all bring, summed: their weights, how many have a vector, and how long those are together.

        Last, whether all who have one mean the same mean: m sum(name^2) = sum(name)^2 holds for equal names only.
        """
        total = torch.tensor([weight, members, length, name, name**2], dtype=torch.float64, device=self._device)
        self._sum(total)
        weights, *counts = total.tolist()
        all_members, lengths, names, squares = map(int, counts)
        return weights, all_members, lengths, all_members * squares == names**2

    def _sum(self, tensor: torch.Tensor) -> None:
        self._group.allreduce([tensor]).wait()


def _group(backend: str, store: Any, rank: int, workers: int, timeout_s: float) -> Any:
    if backend == "mpi":
        return _mpi_group(rank, workers)
    if backend == "nccl":
        return torch_distributed.ProcessGroupNCCL(store, rank, workers, torch_distributed.ProcessGroupNCCL.Options())
    options = torch_distributed.ProcessGroupGloo._Options()
    options._timeout = datetime.timedelta(seconds=timeout_s)
    options._devices = [torch_distributed.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    return torch_distributed.ProcessGroupGloo(store, rank, workers, options)


def _mpi_group(rank: int, workers: int) -> Any:
    """MPI knows its own members. Raises ConfigError where its ranks are not ours."""
    group = torch_distributed.ProcessGroupMPI.create([])
    if (group.rank(), group.size()) != (rank, workers):
        raise ConfigError(
            f"--mean mpi: MPI calls worker {rank} of {workers} its rank {group.rank()} of {group.size()}; start the "
            "workers with mpirun, or take --mean ring or --mean gloo"
        )
    return group
