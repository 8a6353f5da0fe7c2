"""The ranks of a worker as threads of this process, over Gloo on the loopback address."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.engine.sharded.blocks import owners
from paceline.engine.sharded.local_parts import LocalParts
from paceline.runtime.worker.ranks.local_group import LocalGroup, gloo
from paceline.runtime.worker.ranks.meeting import KINDS, RankMeeting

T = TypeVar("T")
TIMEOUT_S = 20.0


def on_ranks(size: int, work: Callable[[LocalGroup], T], timeout_s: float = TIMEOUT_S) -> list[T]:
    """What `work` returns on each rank. Raises the first error of any, with those of the others as notes.

    A rank that fails closes its connections, so the first error may be of one that only noticed that.
    """
    store = dist.HashStore()
    found: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            found[rank] = work(LocalGroup(gloo(store, rank, size, timeout_s)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"another rank: {other!r}")
        raise errors[0]
    return [found[rank] for rank in range(size)]


class DistributedDataParallel(nn.Module):
    """Averages gradients among threads, as torch's class of this name does among processes."""

    def __init__(self, module: nn.Module, group: LocalGroup) -> None:
        super().__init__()
        self.module = module
        self._group = [group]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.module(x)
        return found

    def average(self) -> None:
        """After backward: the mean of the ranks' gradients."""
        parameters = list(self.module.parameters())
        mine = torch.cat(
            [torch.zeros_like(p).reshape(-1) if p.grad is None else p.grad.reshape(-1) for p in parameters]
        )
        mean = torch.tensor(self._group[0].together(mine.tolist())).mean(0)
        for p, part in zip(parameters, torch.split(mean, [p.numel() for p in parameters]), strict=True):
            p.grad = part.view(p.shape).clone()


def ranks_of(
    link: LocalGroup, model: nn.Module, optimizer: torch.optim.Optimizer, places: tuple[int, ...]
) -> RankMeeting:
    """What a rank knows after the meeting, where every rank holds the whole model."""
    parts = LocalParts(model, optimizer)
    layouts = {kind: [parts.layout(kind)] * link.size for kind in KINDS}
    return RankMeeting(model, parts, link, places, layouts, {kind: owners(of) for kind, of in layouts.items()})
