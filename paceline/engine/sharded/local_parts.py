"""Reads and writes what this process holds of a model that the ranks of a worker share.

    kind         tensors                                      as
    WEIGHTS      trained parameters                           float32
    GRADIENTS    their gradients, zeros where there is none   float32
    REST         all other parameters, and the buffers        bytes

The trained parameters come in the order of the model's vector (`paceline.engine.model.trainable`). All vectors are in
host memory: one copy from the device for all tensors together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.engine.model.trainable import in_order, is_plain
from paceline.engine.sharded.blocks import PartLayout, block_of, is_sharded, local_of

WEIGHTS, GRADIENTS, REST = "weights", "gradients", "rest"
"""What travels between the ranks of a worker."""


class LocalParts:
    """Holds the tensors of `module` that this process has, with the optimizer that trains them.

    Raises ConfigError, with the way out, for a model that the ranks of a worker cannot share.
    """

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.module = unwrapped(module)
        self.optimizer = optimizer
        named = dict(self.module.named_parameters())
        _refuse(module, named)
        self.trained: dict[str, nn.Parameter] = in_order(named, optimizer)
        for name, p in self.trained.items():
            if p.dtype != torch.float32:
                raise ConfigError(
                    f"parameter {name} is {p.dtype}: in a worker of several devices parameters are float32; for "
                    "16-bit arithmetic give fully_shard an mp_policy, or use autocast"
                )
        # Kept, as fully_shard puts other parameters into the module while it computes.
        self._frozen = {name: p for name, p in named.items() if name not in self.trained}
        self._sharders: list[Any] = [m for m in self.module.modules() if hasattr(m, "reshard")]
        self._kept: list[Tensor] = []
        self._layouts = {WEIGHTS: _layout(self.trained), REST: _layout(self.rest)}

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Returns the trained parameters, in the order of the vector."""
        return list(self.trained.values())

    @property
    def rest(self) -> dict[str, Tensor]:
        """Returns what is not trained by name, as it is now: somebody may have put another buffer in its place."""
        buffers = {name: b for name, b in self.module.named_buffers() if is_plain(local_of(b))}
        return {**self._frozen, **buffers}

    @property
    def device(self) -> torch.device:
        """Returns the device of this process's part."""
        return local_of(self.parameters[0]).device

    def layout(self, kind: str) -> PartLayout:
        """Returns which blocks this process holds of the trained parameters (WEIGHTS) or of the REST."""
        return self._layouts[kind]

    def length(self, kind: str) -> int:
        """Returns how long the vector is that `unpack` takes."""
        if kind == REST:
            return sum(local_of(t).numel() * local_of(t).element_size() for t in self.rest.values())
        return sum(local_of(p).numel() for p in self.parameters)

    # ---- out ---------------------------------------------------------------------------------------------
    def pack(self, kind: str, numbers: Iterable[int]) -> Tensor:
        """Returns the local blocks of these tensors, one behind the other, in host memory."""
        if kind == REST:
            rest = list(self.rest.values())
            return _joined([_bytes_of(local_of(rest[i])) for i in numbers], torch.uint8)
        parameters = self.parameters
        source: Callable[[nn.Parameter], Tensor] = _gradient_of if kind == GRADIENTS else local_of
        return _joined([source(parameters[i]).reshape(-1) for i in numbers], torch.float32)

    # ---- in ----------------------------------------------------------------------------------------------
    def unpack(self, kind: str, data: Tensor) -> None:
        """Takes over the local blocks of the weights or the rest, as `pack` makes them. Raises ValueError on the
        length."""
        tensors: Sequence[Tensor] = list(self.rest.values()) if kind == REST else self.parameters
        at = 0
        self._reshard()
        with torch.no_grad():
            data = data.to(self.device) if kind == WEIGHTS else data
            for t in tensors:
                local = local_of(t)
                size = local.numel() * (local.element_size() if kind == REST else 1)
                part = data[at : at + size]
                local.copy_((part.clone().view(local.dtype) if kind == REST else part).view(local.shape))
                at += size
        if at != len(data):
            raise ValueError(f"{len(data)} numbers of {kind} for a part of {at}")

    # ---- in memory that all ranks see ----------------------------------------------------------------------
    def write(self, kind: str, numbers: Iterable[int], whole: Sequence[Tensor]) -> None:
        """Writes the local blocks of these weights or gradients where they lie in the `whole` tensors."""
        parameters, blocks = self.parameters, self._layouts[WEIGHTS].blocks
        source: Callable[[nn.Parameter], Tensor] = _gradient_of if kind == GRADIENTS else local_of
        for i in numbers:
            blocks[i].of(whole[i]).copy_(source(parameters[i]))

    def read(self, whole: Sequence[Tensor]) -> None:
        """Takes over the local blocks of the weights from the `whole` tensors."""
        self._reshard()
        for p, block, home in zip(self.parameters, self._layouts[WEIGHTS].blocks, whole, strict=True):
            local_of(p).copy_(block.of(home))

    def cut(self, vector: Tensor) -> list[Tensor]:
        """Returns the pieces of a vector of the model's length, in the shapes of the whole trained parameters."""
        shapes = self._layouts[WEIGHTS].shapes
        pieces = torch.split(vector, [math.prod(shape) for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    # ---- the gradient ------------------------------------------------------------------------------------
    @property
    def has_gradient(self) -> bool:
        """Returns True if any trained parameter has a gradient."""
        return any(self.used())

    def used(self) -> list[bool]:
        """Returns which trained parameters have a gradient."""
        return [p.grad is not None for p in self.parameters]

    def gradient_is_zero(self) -> bool:
        """Returns True if every number of this process's gradients is exactly zero."""
        found = [_gradient_of(p) for p in self.parameters if p.grad is not None]
        return not any(bool(grad.any()) for grad in found)

    def zero_grad(self) -> None:
        """Drops the gradients."""
        for p in self.parameters:
            p.grad = None

    def clip(self, norm: float) -> None:
        """Shortens the gradient of all ranks together to `norm`. Every rank has to call it."""
        nn.utils.clip_grad_norm_(self.parameters, norm)

    # ---- weights that are shown for a while ---------------------------------------------------------------
    def _reshard(self) -> None:
        """Frees whole parameters that a forward pass without backward has left in the module: it would go on with
        them."""
        for module in self._sharders:
            module.reshard()

    def keep(self) -> None:
        """Keeps a copy of the weights for `restore`."""
        self._kept = [local_of(p).clone() for p in self.parameters]

    def restore(self) -> None:
        """Puts back what `keep` has kept."""
        self._reshard()
        with torch.no_grad():
            for p, kept in zip(self.parameters, self._kept, strict=True):
                local_of(p).copy_(kept)
        self._kept = []


def _layout(named: Mapping[str, Tensor]) -> PartLayout:
    """Returns which blocks of these tensors this process holds."""
    return PartLayout(
        names=tuple(named),
        shapes=tuple(tuple(t.shape) for t in named.values()),
        blocks=tuple(block_of(name, t) for name, t in named.items()),
    )


def unwrapped(module: nn.Module) -> nn.Module:
    """Returns the module inside DistributedDataParallel, or the module itself."""
    inner = module.module if _is_ddp(module) else module
    assert isinstance(inner, nn.Module)
    return inner


def _is_ddp(module: nn.Module) -> bool:
    """Returns True for a module in DistributedDataParallel."""
    return any(kind.__name__ == "DistributedDataParallel" for kind in type(module).__mro__)


def _refuse(module: nn.Module, named: dict[str, nn.Parameter]) -> None:
    """Raises ConfigError for a model whose gradients the ranks do not share, or that is wrapped in another way."""
    for part in module.modules():
        if any(kind.__name__ == "FullyShardedDataParallel" for kind in type(part).__mro__):
            raise ConfigError(
                "the model is wrapped in FullyShardedDataParallel: shard it with torch.distributed.fsdp.fully_shard"
            )
    if not _is_ddp(module) and not any(is_sharded(p) for p in named.values()):
        raise ConfigError(
            "paceline.join(group=...): nothing averages the gradients of the group's ranks; wrap the model in "
            "DistributedDataParallel, or shard it with fully_shard or parallelize_module"
        )
    for name, p in named.items():
        if p.is_meta or local_of(p).is_meta:
            raise ConfigError(f"parameter {name} has no numbers yet (device meta): initialise the model first")


def _gradient_of(p: Any) -> Tensor:
    """Returns the local block of the gradient, zeros where there is none."""
    if p.grad is None:
        return torch.zeros_like(local_of(p))
    local = local_of(aligned(p.grad, p))
    return local.to_dense() if local.is_sparse else local


def aligned(t: Any, p: Any) -> Any:
    """Returns a gradient, or another tensor of the shape of parameter `p`, placed on the ranks as `p` is."""
    if is_sharded(t) and t.placements != p.placements:
        return t.redistribute(placements=p.placements)
    return t


def _bytes_of(t: Tensor) -> Tensor:
    """Returns the bytes of a tensor."""
    return t.contiguous().reshape(-1).view(torch.uint8)


def _joined(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Returns the parts as one vector in host memory."""
    return torch.cat([*parts]).cpu() if parts else torch.empty(0, dtype=dtype)
