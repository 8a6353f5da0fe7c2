"""Carries `Mean` by torch.distributed: Gloo, MPI where torch has it, NCCL where every member has its own GPU.

A mean is two all-reduces: the weights first, which is where a fast worker waits for the slow ones, then the vectors,
which is communication; so the trace can tell the two apart. Means that are under way at the same time run in the
order in which they were begun, which must be the same on every worker; the first all-reduce tells if it is not. A
worker that has left keeps taking part with weight zero until everybody has (`drain`), so nobody hangs on uneven
work.

Example: workers 0 and 1 bring 2.0 and 5.0 with weights 1 and 3, and worker 2 has left.

    all-reduce 1   weights 1 + 3 + 0 = 4, members 1 + 1 + 0 = 2, sums that prove they mean the same mean
    all-reduce 2   2.0 * 1/4 + 5.0 * 3/4 + 0 = 4.25

The members meet at the coordinator (`paceline.runtime.collectives.torch_store`), and Gloo listens where this worker
does. What it sends is neither encrypted nor authenticated.
"""

from __future__ import annotations

import datetime
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from paceline.codec.encoded import WHOLE, Encoded
from paceline.codec.pipeline.collective import AS_IT_IS, CODINGS, SHARES, SUMS, Coding, MeanCoder
from paceline.config.sections import TORCH_CARRIERS
from paceline.core.collective.mean_server import Averaged, nobody_counts
from paceline.core.effects import Mean
from paceline.core.errors import ConfigError, Diverged, PeerLost, ProtocolError
from paceline.core.paramserver.peer_check import OwnResults
from paceline.engine.adder import FlatAdder
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.live.protocol.pending_reply import PendingReply
from paceline.runtime.collectives import socket_traffic

torch_distributed: Any = dist  # parts of it carry no types

NAMES = 1 << 16
"""Means are told apart by a number below this; the sum of its square over a million workers is exact in float64."""


def check_built(mean: str) -> None:
    """Raises ConfigError where that carrier of means is torch's, and this PyTorch lacks it."""
    if mean in TORCH_CARRIERS and not getattr(torch_distributed, f"is_{mean}_available")():
        raise ConfigError(
            f"--allreduce {mean}: this PyTorch was built without it; take --allreduce ring, or leave it out"
        )


class CollectiveCarrier:
    """Holds one process group over all workers; means run one after the other on a thread of its own."""

    def __init__(
        self,
        backend: str,
        rank: int,
        workers: int,
        *,
        store: Any,
        bind: str,
        device: torch.device,
        timeout_s: float,
        coder: MeanCoder | None = None,
        check: OwnResults | None = None,
    ) -> None:
        """Blocks until all `workers` are there, for `timeout_s` at most. `coder`: of the codec of this run, if any.

        check: judges this worker's vectors, of which a rejected one counts with weight zero; None: all count.

        `store`: torch's, where they meet; `bind`: the address on which Gloo listens. Raises PeerLost or TimedOut where
        somebody does not come, ConfigError for what MPI or `bind` is not.
        """
        check_built(backend)
        self._backend, self._coder, self._adder, self._check = backend, coder, FlatAdder(), check
        self._device, self._everybody = device, tuple(range(workers))
        before = socket_traffic.open_sockets()
        self._group = _group(backend, store, rank, workers, bind, timeout_s)
        self._sockets = socket_traffic.open_sockets() - before
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mean")

    def begin(self, effect: Mean) -> PendingReply:
        """Queues a mean; the reply completes it. Raises ConfigError for a mean that is not over all workers."""
        if tuple(sorted(effect.among)) != self._everybody:
            raise ConfigError(
                f"{effect.tag} is a mean among {len(effect.among)} of {len(self._everybody)} workers, and all-reduce "
                "carries means over all of them: give --servers 1 or more, and --allreduce servers"
            )
        pending = PendingReply(f"Mean {effect.tag} over all workers", 1, FlatMemory())
        self._thread.submit(self._carry, effect, pending)
        return pending

    def drain(self) -> None:
        """Takes part with weight zero until nobody contributes any more. Raises PeerLost if a worker fails
        meanwhile."""
        try:
            while self._thread.submit(self._take_part).result():
                pass
        except RuntimeError as error:
            raise PeerLost(f"a worker went away while the others were leaving: {error}") from None

    def traffic(self) -> tuple[int, int]:
        """Returns the bytes sent and received by the group, as the kernel counted them at its sockets."""
        return socket_traffic.traffic(self._sockets)

    def close(self) -> None:
        self._thread.shutdown()

    def _carry(self, effect: Mean, pending: PendingReply) -> None:
        """Carries one mean, on the thread; torch reports every failure of a peer as RuntimeError."""
        try:
            pending.put(0, *self._mean(effect))
        except (ProtocolError, Diverged) as error:
            pending.fail(error)
        except RuntimeError as error:
            pending.fail(PeerLost(f"{pending.what} failed: {error}"))

    def _mean(self, effect: Mean) -> tuple[Averaged, float]:
        """Returns the mean and the seconds its vectors took. Raises ProtocolError if another worker means
        another mean, Diverged if nobody's vector may count."""
        v: Any = effect.v
        if rejected := self._check is not None and self._check.rejects(v, effect.weight):
            effect = replace(effect, weight=0.0)
        weight, name = effect.weight, f"{effect.tag} of {len(v)} numbers"
        coding = self._coding(effect)
        number = zlib.crc32(name.encode()) % NAMES
        weights, _, _, one_mean, _ = self._announce(weight, 1, len(v), number, coding)
        if not one_mean:
            raise ProtocolError(f"this worker's next mean is {name}, and another's is a different one")
        if rejected and not weights:
            raise nobody_counts(effect.tag)
        began = time.monotonic()
        if coding == SHARES and weights:
            return Averaged(v=self._gathered(effect), weight=weights), time.monotonic() - began
        mean = spare(len(v), self._device)
        (v * (weight / weights if weights else 0.0)).copy_into(mean)
        if weights:
            self._add_up(mean, coding)
        return Averaged(v=Flat(mean), weight=weights), time.monotonic() - began

    def _gathered(self, effect: Mean) -> Flat:
        """Returns the mean of everybody's encoded vectors, which all receive and add up in the order of ranks.

        That order makes the result the same, bit for bit, on every worker.
        """
        v: Any = effect.v
        coder, v, out = self._coder, self._adder.readable(v), spare(len(v))
        assert coder is not None
        mine = (coder.encode(v, effect.series), effect.weight) if effect.weight else None
        total, mean = 0.0, Flat(out)
        for (weight, exact, whole, _), data in self._gather(mine):
            if weight:
                share = coder.decode(Encoded(WHOLE if whole else coder.codec.name, len(v), data, exact=int(exact)))
                total += weight
                if total == weight:
                    self._adder.copy(share, mean)
                else:
                    self._adder.blend(mean, share, weight / total, mean)
        return mean

    def _gather(self, mine: tuple[Encoded, float] | None) -> Iterator[tuple[list[float], Any]]:
        """Yields, by rank, weight, exact parts, whether the vector is whole, the number of bytes, and those bytes.

        `mine` is None for a worker without a contribution. all_gather wants equal lengths, so bodies are padded to
        the longest.
        """
        about = [0.0] * 4
        if mine:
            share, weight = mine
            about = [weight, share.exact, share.codec == WHOLE, share.nbytes]
        heads = [head.tolist() for head in self._all_of(torch.tensor(about, dtype=torch.float64, device=self._device))]
        longest = max(int(nbytes) for *_, nbytes in heads)
        body = torch.zeros(longest, dtype=torch.uint8, device=self._device)
        if mine:
            body[: share.nbytes].copy_(torch.frombuffer(bytearray(share.data), dtype=torch.uint8))
        for head, data in zip(heads, self._all_of(body), strict=True):
            yield head, data[: int(head[3])].cpu().numpy()

    def _all_of(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Returns everybody's tensor, by rank."""
        all_of = [torch.empty_like(tensor) for _ in self._everybody]
        self._group.allgather([all_of], [tensor]).wait()
        return all_of

    def _take_part(self) -> bool:
        """Adds nothing to the next mean of those that are left, whatever its length; returns False if nobody is
        left."""
        weights, members, lengths, one_mean, coding = self._announce(0.0, 0, 0, 0, AS_IT_IS)
        if weights and one_mean and coding == SHARES:
            list(self._gather(None))
        elif weights and one_mean:
            self._add_up(torch.zeros(lengths // members, device=self._device), coding)
        return members > 0

    def _announce(
        self, weight: float, members: int, length: int, name: int, coding: Coding
    ) -> tuple[float, int, int, bool, Coding]:
        """Returns what all bring, summed: weights, members with a vector, the total length of those vectors.

        The fourth value says whether all members mean the same mean: m sum(name^2) = sum(name)^2 holds for equal
        names only (Cauchy-Schwarz). The last one says how the vectors travel.
        """
        bring = [weight, members, length, name, name**2, CODINGS.index(coding) * members]
        total = torch.tensor(bring, dtype=torch.float64, device=self._device)
        self._sum(total)
        weights, *counts = total.tolist()
        all_members, lengths, names, squares, codings = map(int, counts)
        one_mean = all_members * squares == names**2
        return weights, all_members, lengths, one_mean, CODINGS[codings // max(1, all_members)]

    def _coding(self, effect: Mean) -> Coding:
        """Returns how the vectors of a mean travel. MPI has no 16-bit floats, so there everything encoded is
        gathered."""
        coding = self._coder.coding(effect) if self._coder else AS_IT_IS
        return SHARES if coding == SUMS and self._backend == "mpi" else coding

    def _add_up(self, mean: torch.Tensor, coding: Coding) -> None:
        """Replaces `mean`, one member's part, by the sum of all; it travels in the codec's own type where that can be
        added."""
        if coding != SUMS:
            self._sum(mean)
            return
        assert self._coder is not None
        halves = mean.to(getattr(torch, self._coder.codec.adds_up))
        self._sum(halves)
        mean.copy_(halves)

    def _sum(self, tensor: torch.Tensor) -> None:
        self._group.allreduce([tensor]).wait()


def _group(backend: str, store: Any, rank: int, workers: int, bind: str, timeout_s: float) -> Any:
    """Connects the process group. Raises PeerLost where Gloo does not reach somebody, ConfigError for MPI ranks that
    differ."""
    if backend == "mpi":
        return _mpi_group(rank, workers)
    if backend == "nccl":
        return torch_distributed.ProcessGroupNCCL(store, rank, workers, torch_distributed.ProcessGroupNCCL.Options())
    options = torch_distributed.ProcessGroupGloo._Options()
    options._timeout = datetime.timedelta(seconds=timeout_s)
    try:
        options._devices = [torch_distributed.ProcessGroupGloo.create_device(hostname=bind)]
        return torch_distributed.ProcessGroupGloo(store, rank, workers, options)
    except RuntimeError as error:
        raise PeerLost(
            f"gloo on {bind} did not reach the other workers: {error}; --allreduce ring needs no gloo"
        ) from None


def _mpi_group(rank: int, workers: int) -> Any:
    """Returns MPI's own group. Raises ConfigError where its ranks are not ours."""
    group = torch_distributed.ProcessGroupMPI.create([])
    if (group.rank(), group.size()) != (rank, workers):
        raise ConfigError(
            f"--allreduce mpi: MPI calls worker {rank} of {workers} its rank {group.rank()} of {group.size()}; start "
            "the workers with mpirun, or take --allreduce ring or --allreduce gloo"
        )
    return group
