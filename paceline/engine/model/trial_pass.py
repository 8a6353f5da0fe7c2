"""Makes trial passes through a module that leave no trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from paceline.engine.accelerators import generator_state, set_generator_state
from paceline.engine.torch_generator import torch_generator


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Restores buffers, gradients and torch's random state when the context ends; weights must not change in it.

    Tensors keep their place: what was a view of a larger buffer still is.
    """
    buffers = [(part, name, b, _copy(b)) for part in module.modules() for name, b in part._buffers.items()]
    gradients = [(p, p.grad, _copy(p.grad)) for p in module.parameters()]
    beside = {p.device for p in module.parameters() if p.device.type not in ("cpu", "meta")}
    states = [(device, generator_state(device)) for device in beside]
    with torch_generator, torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            with torch.no_grad():
                for part, name, buffer, before in buffers:
                    part._buffers[name] = _restored(buffer, before)
                for p, gradient, before in gradients:
                    p.grad = _restored(gradient, before)
            for device, state in states:
                if state is not None:
                    set_generator_state(state, device)


def _copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Returns a copy that shares nothing with the tensor; None for None."""
    return None if tensor is None else tensor.detach().clone()


def _restored(tensor: torch.Tensor | None, before: torch.Tensor | None) -> torch.Tensor | None:
    """Returns the tensor with the numbers of `before`."""
    if tensor is not None and before is not None:
        tensor.copy_(before)
    return tensor
