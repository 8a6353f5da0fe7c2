"""Connects the ranks of one worker, on one machine: orders of the first rank, and vectors between it and the others.

    first rank                 other ranks
    order("send", kind=...)    hear() -> {"act": "send", ...}
    share(length)              hear(), attach(path, length): memory that all of them read and write
    collect(lengths)           give(data)
    settled()                  settle(): what was ordered is done
    order("take", ...)         hear()
    deliver(parts)             receive(length), or receive_same(length)
    together(numbers)          together(numbers): everybody's numbers, on all ranks

Orders are JSON in frames of FRAME bytes, so that one broadcast carries most of them. The ranks meet in a Gloo group of
their own on the loopback address: it lives as long as the worker, whatever becomes of the user's process groups, and
nothing of it needs a GPU. Nothing that arrives is unpickled.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.core.errors import ConfigError, PeerLost
from paceline.runtime.worker.ranks.common_memory import attached, offered

torch_distributed: Any = dist  # parts of it carry no types

LOOPBACK = "127.0.0.1"
FRAME = 512
"""Bytes of the first frame of an order; a longer one has a second frame."""
IDLE_DAYS = 30
"""Days that another rank waits for an order: the first rank may wait for other workers for long."""
WHY_MAX = 2000
"""Characters of the reason why the first rank has failed."""
_HEAD = 4


class LocalGroup:
    """Holds the ranks of one worker. Each call is made by all ranks, in the same order.

    rank, size: of this process among them.
    """

    def __init__(self, carrier: Any) -> None:
        """`carrier`: a process group of Gloo over the ranks (`gloo`)."""
        self._carrier = carrier
        self.rank, self.size = int(carrier.rank()), int(carrier.size())
        self.lost = False  # is another rank gone, or has this one failed?
        self.bytes = 0  # sent and received by this rank, vectors only

    @classmethod
    def meet(cls, group: Any, timeout_s: float) -> LocalGroup:
        """Returns the group of these ranks, over connections of its own. All ranks of `group` call it.

        `group`: a process group, or a DeviceMesh of one dimension. Raises ConfigError for anything else.
        """
        group = process_group(group)
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        wait = datetime.timedelta(seconds=timeout_s)
        store: Any = None
        port = torch.zeros(1, dtype=torch.int64, device=_device_of(group))
        if rank == 0:
            store = torch_distributed.TCPStore(LOOPBACK, 0, size, True, wait, wait_for_workers=False)
            port.fill_(store.port)
        dist.broadcast(port, group=group, group_src=0)
        if rank:
            store = torch_distributed.TCPStore(LOOPBACK, int(port.item()), size, False, wait)
        return cls(gloo(store, rank, size, timeout_s))

    # ---- orders ------------------------------------------------------------------------------------------
    def order(self, act: str, **arguments: Any) -> None:
        """Tells the other ranks what to do; nobody once the group is closed. Called by the first rank."""
        if self._carrier is None:
            return
        data = json.dumps({"act": act, **arguments}, separators=(",", ":")).encode()
        frame = bytearray(FRAME)
        frame[:_HEAD] = len(data).to_bytes(_HEAD, "little")
        first, more = data[: FRAME - _HEAD], data[FRAME - _HEAD :]
        frame[_HEAD : _HEAD + len(first)] = first
        self._broadcast(torch.frombuffer(frame, dtype=torch.uint8))
        if more:
            self._broadcast(torch.frombuffer(bytearray(more), dtype=torch.uint8))

    def fail(self, why: str) -> None:
        """Tells the other ranks, once, that the first one has failed, if they can be reached."""
        if not self.lost:
            self.lost = True
            with contextlib.suppress(PeerLost):
                self.order("failed", why=why[:WHY_MAX])

    def dismiss(self) -> None:
        """Tells the other ranks that the first one goes on alone, and hears no more of them."""
        self.order("dismissed")
        self.lost = True

    def close(self) -> None:
        """Ends the connections and their threads, which must not outlive the interpreter. No call but `order` may
        follow."""
        self._carrier = None

    def hear(self) -> dict[str, Any]:
        """Returns the first rank's next order. Raises PeerLost if it is gone."""
        frame = torch.zeros(FRAME, dtype=torch.uint8)
        self._broadcast(frame)
        found = frame.numpy().tobytes()
        length = int.from_bytes(found[:_HEAD], "little")
        data = found[_HEAD : _HEAD + length]
        if length > len(data):
            rest = torch.zeros(length - len(data), dtype=torch.uint8)
            self._broadcast(rest)
            data += rest.numpy().tobytes()
        order: dict[str, Any] = json.loads(data)
        return order

    # ---- memory ------------------------------------------------------------------------------------------
    def share(self, length: int) -> Tensor | None:
        """Returns a float32 vector that all ranks have in their memory; None where they cannot. Called by the first
        rank; the others answer by `attach`."""
        with offered(length) as found:
            if found is None:
                return None
            memory, path = found
            self.order("attach", path=path, length=length)
            return memory if all(bool(done) for done in self.collect([1] * (self.size - 1), torch.float32)) else None

    def attach(self, path: str, length: int) -> Tensor | None:
        """Returns the vector that the first rank shares, and tells it whether that was possible."""
        memory = attached(path, length)
        self.give(torch.tensor([float(memory is not None)]))
        return memory

    def settled(self) -> None:
        """Returns when all other ranks have called `settle`. Called by the first rank."""
        self.collect([1] * (self.size - 1), torch.float32)

    def settle(self) -> None:
        """Tells the first rank that this one has done what was ordered."""
        self.give(torch.ones(1))

    # ---- vectors -----------------------------------------------------------------------------------------
    def collect(self, lengths: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
        """Returns what each other rank gives, of these lengths. Called by the first rank."""
        room = [torch.empty(length, dtype=dtype) for length in lengths]
        works = [self._carrier.recv([t], rank, 0) for rank, t in enumerate(room, 1) if len(t)]
        self._wait(works)
        self.bytes += sum(t.nbytes for t in room)
        return room

    def give(self, data: Tensor) -> None:
        """Sends a vector to the first rank."""
        if len(data):
            self._wait([self._carrier.send([data.contiguous()], 0, 0)])
            self.bytes += data.nbytes

    def deliver(self, parts: Sequence[Tensor]) -> None:
        """Sends each other rank its vector. Called by the first rank."""
        self._wait([self._carrier.send([t], rank, 0) for rank, t in enumerate(parts, 1) if len(t)])
        self.bytes += sum(t.nbytes for t in parts)

    def receive(self, length: int, dtype: torch.dtype) -> Tensor:
        """Returns what `deliver` sends to this rank."""
        data = torch.empty(length, dtype=dtype)
        if length:
            self._wait([self._carrier.recv([data], 0, 0)])
            self.bytes += data.nbytes
        return data

    def deliver_same(self, data: Tensor) -> None:
        """Sends all other ranks the same vector. Called by the first rank."""
        if len(data):
            self._broadcast(data)
            self.bytes += data.nbytes

    def receive_same(self, length: int, dtype: torch.dtype) -> Tensor:
        """Returns what `deliver_same` sends."""
        data = torch.empty(length, dtype=dtype)
        if length:
            self._broadcast(data)
            self.bytes += data.nbytes
        return data

    def together(self, numbers: Sequence[float]) -> list[list[float]]:
        """Returns the numbers of all ranks, by rank. All ranks give as many."""
        mine = torch.tensor(list(numbers), dtype=torch.float64)
        rooms = [torch.empty_like(mine) for _ in range(self.size)]
        self._wait([self._carrier.allgather([rooms], [mine])])
        return [room.tolist() for room in rooms]

    def texts(self, text: str) -> list[str]:
        """Returns the texts of all ranks, by rank; not for every step."""
        data = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        lengths = [int(length) for (length,) in self.together([len(data)])]
        rooms = [torch.zeros(max(lengths), dtype=torch.uint8) for _ in lengths]
        mine = torch.zeros(max(lengths), dtype=torch.uint8)
        mine[: len(data)] = data
        self._wait([self._carrier.allgather([rooms], [mine])])
        return [room[:length].numpy().tobytes().decode() for room, length in zip(rooms, lengths, strict=True)]

    # ---- below -------------------------------------------------------------------------------------------
    def _broadcast(self, data: Tensor) -> None:
        """Sends the first rank's data to all; the others' is overwritten."""
        options = torch_distributed.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        self._wait([self._carrier.broadcast([data], options)])

    def _wait(self, works: Sequence[Any]) -> None:
        """Waits for transfers. Raises PeerLost where a rank of this worker is gone, or silent for too long."""
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            self.lost = True
            why = str(error).partition("\n")[0].rpartition("] ")[2].partition(". ")[0]
            raise PeerLost(
                f"a rank of this worker was lost, and the worker with it (this is rank {self.rank} of {self.size}): "
                f"{why}"
            ) from None


def gloo(store: Any, rank: int, size: int, timeout_s: float) -> Any:
    """Returns a Gloo group on the loopback address, whose ranks meet at `store`.

    The first rank waits for the others for `timeout_s`, as their turn is the same as its own; they wait for it for as
    long as it takes.
    """
    options = torch_distributed.ProcessGroupGloo._Options()
    options._timeout = datetime.timedelta(days=IDLE_DAYS if rank else 0, seconds=timeout_s)
    options._devices = [torch_distributed.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
    return torch_distributed.ProcessGroupGloo(store, rank, size, options)


def process_group(group: Any, name: str = "group") -> Any:
    """Returns the process group of a group or mesh. Raises ConfigError where there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        raise ConfigError(
            f"paceline.join({name}=...): there is no process group yet; call torch.distributed.init_process_group first"
        )
    if hasattr(group, "get_group") and hasattr(group, "mesh"):
        if group.ndim != 1:
            names = group.mesh_dim_names or ()
            raise ConfigError(
                f"paceline.join({name}=...): a mesh of {group.ndim} dimensions {names or ''}; give the group of all "
                "its ranks, such as torch.distributed.group.WORLD"
            )
        return group.get_group()
    if not isinstance(group, torch_distributed.ProcessGroup):
        raise ConfigError(
            f"paceline.join({name}={group!r}): give a process group, such as torch.distributed.group.WORLD"
        )
    return group


def _device_of(group: Any) -> torch.device:
    """Returns a device whose tensors the backend of a group carries."""
    kinds = [device.type for device in group._device_types]
    return torch.device("cpu") if "cpu" in kinds or not kinds else torch.device(kinds[0], index_of(kinds[0]))


def index_of(kind: str) -> int:
    """Returns the number of this process's present device of that kind."""
    return int(getattr(torch, kind).current_device())
