"""Trains in mixed precision: forward and backward in 16 bits, weights and gradients in 32.

    fp32     everything in float32
    bf16     matrix products and convolutions in bfloat16 (torch.autocast), which has the range of float32
    fp16     in float16, which has not: the loss is scaled up and gradients down again, by a factor that follows them

Parameters stay float32, so what workers and servers exchange, and what optimizers work on, is float32 in every case.
Micikevicius et al., Mixed Precision Training, ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class BatchPart(NamedTuple):
    """Some `rows` of a mini-batch, which are such a `share` of its samples."""

    share: float
    rows: slice


WHOLE: Sequence[BatchPart] = (BatchPart(1.0, slice(None)),)
"""The only part of a mini-batch that fits into memory."""


class Precision:
    """Runs backward passes of `module` on `device`. Raises ConfigError for fp16 on anything but a CUDA device."""

    def __init__(self, name: str, module: nn.Module, device: torch.device | str) -> None:
        self._kind, self._type = torch.device(device).type, _TYPES.get(name)
        if name == "fp16" and self._kind != "cuda":
            raise ConfigError(f"precision fp16 needs a CUDA device, and this worker is on the {self._kind}: take bf16")
        self._scale = Scale(module, self._kind) if name == "fp16" else None

    def backward(self, loss_of: Callable[..., Tensor], *batch: Tensor, parts: Sequence[BatchPart] = WHOLE) -> Tensor:
        """Leaves the gradient of `loss_of(*batch)` with the parameters, made part by part, and returns the loss. It may
        compute the loss more than once."""
        losses = [self._backward_of(loss_of, batch, part, whole=len(parts) == 1) for part in parts]
        if self._scale is not None and not self._scale.unscale():
            return self.backward(loss_of, *batch, parts=parts)
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _backward_of(
        self, loss_of: Callable[..., Tensor], batch: Sequence[Tensor], part: BatchPart, whole: bool
    ) -> Tensor:
        """Adds the gradient of one part to those of the parameters; returns what it has of the loss."""
        with torch.autocast(self._kind, self._type, enabled=self._type is not None):
            loss = loss_of(*batch) if whole else loss_of(*(x[part.rows] for x in batch)) * part.share
        scaled = loss if self._scale is None else self._scale.scaled(loss)
        scaled.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


class Scale:
    """The factor that the loss is multiplied by: it is halved when a gradient overflows, doubled after 2,000 that did
    not.

    The backward pass of an overflow is repeated: a worker owes its scheme a gradient for every batch, and a batch that
    was dropped would be missing in the others' mean.
    """

    def __init__(self, module: nn.Module, kind: str, start: float = 2.0**16) -> None:
        self._scaler = torch.amp.GradScaler(kind, init_scale=start)
        # This optimizer never makes a step; the scaler asks it where the gradients are.
        self._gradients = torch.optim.SGD(module.parameters(), lr=0.0)

    @property
    def now(self) -> float:
        """Returns the factor by which losses are multiplied now."""
        return float(self._scaler.get_scale())

    def scaled(self, loss: Tensor) -> Tensor:
        """Returns the loss whose gradients are large enough for 16 bits."""
        return self._scaler.scale(loss)

    def unscale(self) -> bool:
        """Leaves the gradient without the factor with the parameters. Returns False when it overflowed; it is zero
        then.

        At a scale below 1 an overflow is the model's own, as in float32, and the gradient stays as it is.
        """
        before = self.now
        self._scaler.unscale_(self._gradients)
        self._scaler.update()
        if self.now < before and before >= 1:
            self._gradients.zero_grad(set_to_none=False)
            return False
        return True
