"""Ranks of a worker in one process: parts of a model as DTensors of a fake process group; a link that calls them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from paceline.engine.sharded.blocks import is_sharded, local_of, owners
from paceline.engine.sharded.gathered_model import GatheredModel
from paceline.engine.sharded.local_parts import REST, WEIGHTS, LocalParts
from paceline.engine.sharded.local_state import LocalState

Placements = Callable[[str], Sequence[Placement]]
"""How the parameter of a name is placed."""


@contextlib.contextmanager
def fake_rank(rank: int, size: int) -> Iterator[None]:
    """A process group of which this process is one rank; it carries nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def place(model: nn.Module, shape: tuple[int, ...], placements: Placements) -> nn.Module:
    """`model` with its parameters sharded, as this rank of a mesh of that shape holds them."""
    # torch keeps placements by their mesh, and meshes of two ranks are equal unless their names differ.
    names = tuple(f"{dim} of rank {dist.get_rank()}" for dim in range(len(shape)))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    for name, p in list(model.named_parameters()):
        local = p.detach()
        for at, size, placement in zip(coordinate, shape, placements(name), strict=True):
            if isinstance(placement, Shard):
                pieces = torch.chunk(local, size, placement.dim)
                local = pieces[at] if at < len(pieces) else local.narrow(placement.dim, 0, 0)
        sharded = DTensor.from_local(
            local.clone(), mesh, placements(name), run_check=False, shape=p.shape, stride=p.stride()
        )
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, nn.Parameter(sharded, requires_grad=p.requires_grad))
    return model


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """SGD of all that requires a gradient."""
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)


def parts_of(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    placements: Placements,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd,
) -> list[LocalParts]:
    """What each rank of a mesh of that shape holds of the model."""
    found = []
    for rank in range(torch.Size(shape).numel()):
        with fake_rank(rank, torch.Size(shape).numel()):
            model = place(make(), shape, placements)
            found.append(LocalParts(model, optimizer(model)))
    return found


class CallingLink:
    """Carries out the first rank's orders on the other ranks' parts at once, as `Obedience` does."""

    def __init__(self, others: Sequence[LocalParts], sends: dict[str, list[list[int]]], *, shares: bool) -> None:
        self._others, self._sends = others, sends
        self.room = torch.empty(0) if shares else None
        self.acts: list[str] = []
        self._given: list[Tensor] = []
        self._kind = ""
        self._later: list[list[Tensor]] = []  # for each further `collect`, what each rank gives
        self._awaited: list[Any] = []  # numbers and names of a state whose vectors come
        self._vectors: list[list[Tensor]] = []

    def order(self, act: str, **arguments: Any) -> None:
        self.acts.append(act)
        self._kind = arguments.get("kind", "")
        self._given = []
        for rank, parts in enumerate(self._others, 1):
            match act:
                case "send":
                    numbers = self._sends[REST if self._kind == REST else WEIGHTS][rank]
                    self._given.append(parts.pack(self._kind, numbers))
                case "give_state":
                    self._queue_state(rank, parts, arguments["names"])
                case "take_state":
                    self._awaited = [arguments["numbers"], arguments["names"]]
                case "write":
                    assert self.room is not None
                    with torch.no_grad():
                        parts.write(self._kind, self._sends[WEIGHTS][rank], parts.cut(self.room))
                case "read":
                    assert self.room is not None
                    with torch.no_grad():
                        parts.read(parts.cut(self.room))
                case "is_zero":
                    self._given.append(torch.tensor([float(parts.gradient_is_zero())]))
                case "step":
                    parts.optimizer.step()
                case "zero_grad" | "keep" | "restore":
                    getattr(parts, act)()

    def share(self, length: int) -> Tensor | None:
        if self.room is None:
            return None
        self.room = torch.zeros(length)
        return self.room

    def settled(self) -> None: ...

    def _queue_state(self, rank: int, parts: LocalParts, names: Sequence[str]) -> None:
        state = LocalState(parts)
        taken = state.take()
        if rank == 1:
            self._later = [[] for _ in names]
        for name, given in zip(names, self._later, strict=True):
            given.append(state.owned(taken, name, self._sends[WEIGHTS][rank]))

    def collect(self, lengths: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
        self._given = self._later.pop(0) if self._later else self._given
        assert [len(given) for given in self._given] == list(lengths)
        assert {given.dtype for given in self._given} <= {dtype}
        return self._given

    def deliver(self, parts: Sequence[Tensor]) -> None:
        if self._awaited:
            self._take_state(parts)
            return
        for other, part in zip(self._others, parts, strict=True):
            other.unpack(self._kind, part)

    def _take_state(self, vectors: Sequence[Tensor]) -> None:
        numbers, names = self._awaited
        self._vectors.append(list(vectors))
        if len(self._vectors) == len(names):
            for other, own in zip(self._others, zip(*self._vectors, strict=True), strict=True):
                LocalState(other).load({**numbers, **dict(zip(names, own, strict=True))})
            self._awaited, self._vectors = [], []

    def deliver_same(self, data: Tensor) -> None:
        for other in self._others:
            other.unpack(self._kind, data)


def whole_of(parts: Sequence[LocalParts], *, shares: bool = True) -> tuple[GatheredModel, CallingLink]:
    """The whole model of these ranks, and the link to all but the first. `shares`: have they memory together?"""
    layouts = {kind: [one.layout(kind) for one in parts] for kind in (WEIGHTS, REST)}
    sends = {kind: owners(of) for kind, of in layouts.items()}
    link = CallingLink(parts[1:], sends, shares=shares)
    return GatheredModel(parts[0], link, layouts, sends), link


def set_gradients(parts: Sequence[LocalParts], of: dict[str, Tensor]) -> None:
    """Gives each rank its block of these gradients, as backward would."""
    for one in parts:
        for name, p in one.trained.items():
            if not is_sharded(p):
                p.grad = of[name].clone()
                continue
            i = list(one.trained).index(name)
            local = one.layout(WEIGHTS).blocks[i].of(of[name]).clone()
            q: Any = p
            p.grad = DTensor.from_local(  # type: ignore[assignment]
                local, q.device_mesh, q.placements, run_check=False, shape=q.shape, stride=q.stride()
            )
            assert local_of(p.grad).shape == local_of(p).shape
