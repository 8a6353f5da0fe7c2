"""Keeps a float32 master of every 16-bit parameter, in the model's vector; masters are what is exchanged and updated.

    load the weights w      master <- w;   p <- round(master)
    show the weights        master <- master + (p - round(master)), where somebody has changed p

What a step of the worker changes in `p` is added to the master, so the rounding of `p` loses nothing. A parameter that
was only ever changed here is its own master.

A float32 parameter whose numbers lie in another order than in the vector, as those of `channels_last`, keeps its own
memory in the same way, and so its strides; its master is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paceline.engine.model.used_parameters import Used

LOW = (torch.bfloat16, torch.float16)


def keeps_its_memory(p: Tensor) -> bool:
    """Returns True for a parameter that is no view of the vector: one of 16 bits, or of strides of its own."""
    return p.dtype in LOW or (not p.is_contiguous() and torch.empty_like(p, device="meta").stride() == p.stride())


class LowPrecision:
    """Pairs those among `parameters` that keep their own memory with their masters; `masters` has those of all, in the
    same order."""

    def __init__(self, parameters: Sequence[nn.Parameter], masters: Sequence[Tensor]) -> None:
        self._numbers = [i for i, p in enumerate(parameters) if keeps_its_memory(p)]
        self._pairs = [(parameters[i], masters[i]) for i in self._numbers]

    def __len__(self) -> int:
        return len(self._pairs)

    def show(self) -> None:
        """Rounds the masters into the parameters, after the masters have changed."""
        if self._pairs:  # most models have none, and are asked in every step
            with torch.no_grad():
                for p, master in self._pairs:
                    p.copy_(master)

    def bring(self) -> None:
        """Adds to the masters what has changed in the parameters."""
        if self._pairs:
            with torch.no_grad():
                for p, master in self._pairs:
                    if p.dtype in LOW:
                        master.add_(p.float() - master.to(p.dtype).float())
                    else:
                        master.copy_(p)

    def put_gradients(self, views: Sequence[Tensor], used: Used) -> None:
        """Gives each parameter a copy of its gradient, of its own type; none (None) to those that are not `used`."""
        for i, (p, _) in zip(self._numbers, self._pairs, strict=True):
            p.grad = torch.empty_like(p).copy_(views[i]) if i in used else None
