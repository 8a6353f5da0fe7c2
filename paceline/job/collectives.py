"""`Mean` carried by torch.distributed: Gloo on CPUs, NCCL where every member has a GPU of its own.

A mean is two all-reduces: the weights first, which is where a fast worker waits for the slow ones, then the vectors,
which is communication; so the trace can tell the two apart. A worker that has left keeps taking part with weight
zero until everybody has (`drain`), so nobody hangs on uneven work.

The rendezvous is a file of the run's own folder and the group binds to the loopback address: torch's TCPStore would
listen on every interface.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paceline.core.effects import Mean
from paceline.core.errors import PeerLost
from paceline.core.mean import Averaged
from paceline.engine.pool import spare
from paceline.engine.vector import Flat, FlatMemory
from paceline.job import sockets
from paceline.live.pending import Pending

torch_distributed: Any = dist  # parts of it carry no types


def collective_for(devices: Sequence[str]) -> str:
    """NCCL when every worker has a GPU of its own, Gloo otherwise."""
    own = len(set(devices)) == len(devices) and all(device.startswith("cuda:") for device in devices)
    return "nccl" if own and devices else "gloo"


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
        self._device, self._rank = device, rank
        before = sockets.open_sockets()
        self._group = _group(backend, store, rank, workers, timeout_s)
        self._sockets = sockets.open_sockets() - before
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mean")

    def begin(self, effect: Mean) -> Pending:
        v: Any = effect.v
        pending = _Collective(f"Mean {effect.tag} over all workers", 1, FlatMemory())
        self._thread.submit(self._carry, v, effect.weight, pending)
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

    def _carry(self, v: Flat, weight: float, pending: _Collective) -> None:
        try:
            answer, seconds = self._mean(v, weight)
            pending.communicated = seconds
            pending.put(0, answer, 0.0)
        except RuntimeError as error:
            pending.fail(PeerLost(f"{pending.what} failed: {error}"))

    def _mean(self, v: Flat, weight: float) -> tuple[Averaged, float]:
        """The mean and the seconds its vectors took."""
        weights, members, lengths = self._announce(weight, 1, len(v))
        if lengths != members * len(v):
            raise RuntimeError(f"worker {self._rank} has {len(v)} numbers, all {members} together {lengths}")
        began = time.monotonic()
        mean = spare(len(v), self._device)
        (v * (weight / weights if weights else 0.0)).copy_into(mean)
        if weights:
            self._sum(mean)
        return Averaged(v=Flat(mean), weight=weights), time.monotonic() - began

    def _take_part(self) -> bool:
        """Add nothing to the mean of those that are left, however long their vectors are; False if nobody is left."""
        weights, members, lengths = self._announce(0.0, 0, 0)
        if weights:
            self._sum(torch.zeros(lengths // members, device=self._device))
        return members > 0

    def _announce(self, weight: float, members: int, length: int) -> tuple[float, int, int]:
        """What all members bring, summed: their weights, how many have a vector, and how long those are together."""
        total = torch.tensor([weight, members, length], dtype=torch.float64, device=self._device)
        self._sum(total)
        weights, all_members, lengths = total.tolist()
        return weights, int(all_members), int(lengths)

    def _sum(self, tensor: torch.Tensor) -> None:
        self._group.allreduce([tensor]).wait()


class _Collective(Pending):
    communicated = 0.0

    def seconds_communicating(self, since: float = 0.0) -> float:
        return self.communicated


def _group(backend: str, store: Any, rank: int, workers: int, timeout_s: float) -> Any:
    if backend == "nccl":
        return torch_distributed.ProcessGroupNCCL(store, rank, workers, torch_distributed.ProcessGroupNCCL.Options())
    options = torch_distributed.ProcessGroupGloo._Options()
    options._timeout = datetime.timedelta(seconds=timeout_s)
    options._devices = [torch_distributed.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    return torch_distributed.ProcessGroupGloo(store, rank, workers, options)


class Alone:
    """The carrier of a run of one worker: a mean over oneself."""

    def begin(self, effect: Mean) -> Pending:
        pending = _Collective("oneself", 1, FlatMemory())
        pending.put(0, Averaged(v=effect.v, weight=effect.weight), 0.0)
        return pending

    def drain(self) -> None:
        pass

    def traffic(self) -> tuple[int, int]:
        return 0, 0

    def close(self) -> None:
        pass
