"""Says which part of a module is trained, and what is the rest.

    trained    parameters that require a gradient and that the optimizer holds: exchanged and updated
    rest       all other parameters and the buffers: everybody begins with worker 0's, and later each keeps its own

The rest travels once, as bytes, so it may be of any type. Nobody keeps a copy.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from paceline.core.errors import ConfigError
from paceline.engine.model.low_precision import LOW
from paceline.engine.model.plain_names import compared
from paceline.engine.model.tensor_bytes import TensorPart, parts_of, put_together, write_bytes


def trained_of(module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, nn.Parameter]:
    """Returns the trained parameters by name, in the order of `named_parameters()`, tied ones once.

    optimizer: those that it holds; None: all that require a gradient. Where it has several parameter groups, those of
    the first come first, then those of the second, and so on.

    Raises ConfigError, with the way out, for a module or a parameter that cannot be trained here.
    """
    _refuse_wrapped(module)
    named = dict(module.named_parameters())
    for name, p in named.items():
        _refuse_unfit(name, p)
    found = in_order(named, optimizer)
    if not any(p.numel() for p in found.values()):
        raise ConfigError("the model has no parameters to train: none that requires a gradient and is in the optimizer")
    _refuse_untrainable(named, found)
    return found


def in_order(
    named: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None = None
) -> dict[str, nn.Parameter]:
    """Returns those of `named` that are trained, in the order of the model's vector.

    Raises ConfigError where the optimizer holds others too.
    """
    found = {name: p for name, p in named.items() if p.requires_grad}
    if optimizer is not None:
        held = {p for group in optimizer.param_groups for p in group["params"]}
        if not held <= set(named.values()):
            raise ConfigError(
                "the optimizer holds a parameter that is not in the model: hand over a module that contains all of them"
            )
        # Sorting is stable: within a group parameters keep the order of the module.
        number = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        found = dict(sorted(((name, p) for name, p in found.items() if p in held), key=lambda named: number[named[1]]))
    return found


@dataclass(frozen=True, slots=True)
class RestPart:
    """Names a part of what is not trained: part `number` of the tensor at `path` in the module."""

    path: str
    number: int


class Rest:
    """Reads and writes all of `module` but what is `trained`, part by part (`paceline.engine.model.tensor_bytes`).

    kept: tensors that have no numbers that could be read; they stay each worker's own.
    """

    def __init__(self, module: nn.Module, trained: Mapping[str, nn.Parameter]) -> None:
        self._module = module
        own = {id(p) for p in trained.values()}
        named = [(name, p) for name, p in module.named_parameters() if id(p) not in own] + [*module.named_buffers()]
        self.parts = [RestPart(name, i) for name, t in named for i in range(len(parts_of(t)))]
        self.kept = [compared(name) for name, t in named if not parts_of(t)]

    def found(self, part: RestPart) -> TensorPart:
        """Returns a part as it is now: somebody may have put another buffer in its place."""
        return parts_of(self._owner(part))[part.number]

    def _owner(self, part: RestPart) -> Tensor:
        return functools.reduce(getattr, part.path.split("."), self._module)  # type: ignore[return-value]

    def fingerprint(self) -> str:
        """Returns a text that is the same in two processes exactly when their parts mean the same."""
        return hashlib.sha256(repr(self.layout()).encode()).hexdigest()[:16]

    def layout(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Returns name, type and shape of each part, and for one of a sparse tensor the shape of that."""
        found = [(part, self.found(part)) for part in self.parts]
        return [
            (
                compared(part.path) + at.name,
                str(at.tensor.dtype),
                tuple((at.tensor if at.in_place else self._owner(part)).shape),
            )
            for part, at in found
        ]

    def load(self, part: RestPart, shape: Sequence[int], pieces: Iterable[tuple[int, Tensor]]) -> Tensor | None:
        """Writes bytes of another process into a part, which gets this shape; each with the byte where it begins.

        Returns the numbers where they are not in place yet (`put`). Raises ValueError for a shape that it cannot have.
        """
        at, owner = self.found(part), self._owner(part)
        into = at.tensor
        if not at.in_place:
            into = torch.empty(tuple(shape), dtype=into.dtype, device=into.device)
        elif tuple(shape) != tuple(into.shape):  # an observer of quantization knows its channels after its first batch
            if at.tensor is not owner:
                raise ValueError(f"{part.path} of shape {tuple(shape)} for {tuple(into.shape)}")
            owner.data = into = torch.empty(tuple(shape), dtype=into.dtype, device=into.device)
        for start, data in pieces:
            write_bytes(into, start, data)
        return None if at.in_place else into

    def put(self, path: str, parts: Sequence[Tensor]) -> None:
        """Puts parts together that are not in place."""
        put_together(self._owner(RestPart(path, 0)), parts)

    def loaded(self) -> None:
        """Notes that something was loaded; here nobody else holds it."""


def is_plain(t: Tensor) -> bool:
    """Returns True for a tensor whose bytes can be copied: strided, not quantized, with memory of its own."""
    return t.layout is torch.strided and not t.is_quantized and not t.is_meta and not _is_expanded(t)


def _is_expanded(t: Tensor) -> bool:
    """Returns True if several elements share memory, as after `expand`."""
    return any(size > 1 and not stride for size, stride in zip(t.shape, t.stride(), strict=True))


# ---- what is refused ---------------------------------------------------------------------------------------------
def _refuse_wrapped(module: nn.Module) -> None:
    """Raises ConfigError for a module in DDP or FSDP, each with the way out."""
    for part in module.modules():
        kinds = {kind.__name__ for kind in type(part).__mro__}
        if "DistributedDataParallel" in kinds:
            raise ConfigError(
                "the model is wrapped in DistributedDataParallel, which would exchange gradients too: "
                "hand over the module inside (ddp.module), or the group of a worker of several devices (group=)"
            )
        if kinds & {"FullyShardedDataParallel", "FSDPModule"}:
            raise ConfigError(
                "the model is sharded by FSDP, and a worker of one process holds whole parameters: hand it over "
                "unsharded, or say paceline.join(..., group=process_group)"
            )


def _refuse_unfit(name: str, p: nn.Parameter) -> None:
    """Raises ConfigError for a parameter that no part of the package can handle, trained or not."""
    if any(kind.__name__ == "DTensor" for kind in type(p).__mro__):
        raise ConfigError(
            f"parameter {name} is a DTensor, of which this process has a part (fully_shard, parallelize_module): "
            "hand over the model with whole parameters, or say paceline.join(..., group=process_group)"
        )
    if is_lazy(p):
        raise ConfigError(f"parameter {name} has no numbers yet: run one batch through the model first")
    if p.is_meta:
        raise ConfigError(f"parameter {name} has no numbers yet (device meta): initialise the model on a device first")


def _refuse_untrainable(named: Mapping[str, nn.Parameter], trained: Mapping[str, nn.Parameter]) -> None:
    """Raises ConfigError for a trained parameter of another device, a wrong type or shared memory."""
    device = next(iter(trained.values())).device
    for name, p in named.items():
        if p.device != device:
            raise ConfigError(f"parameter {name} is on {p.device} but others are on {device}: use one device")
    for name, p in trained.items():
        if p.is_complex():
            raise ConfigError(f"parameter {name} is {p.dtype}: make it two float32 parameters, torch.view_as_real")
        if p.dtype not in (torch.float32, *LOW):
            raise ConfigError(
                f"parameter {name} is {p.dtype}, and weights are exchanged as float32: call model.float() before "
                "paceline.join, and x.float() on what it is given"
            )
        if _is_expanded(p):
            raise ConfigError(f"parameter {name} is expanded, so that its numbers share memory: .clone() it first")
    _refuse_overlapping(named, trained)


def _refuse_overlapping(named: Mapping[str, nn.Parameter], trained: Mapping[str, nn.Parameter]) -> None:
    """Raises ConfigError for two parameters that share memory, one of them trained: they would not
    share it any more.
    """
    places = sorted((p.data_ptr(), _end(p), name) for name, p in named.items() if p.numel())
    for (_, end, name), (start, _, other) in itertools.pairwise(places):
        if start < end and (name in trained or other in trained):
            first, second = sorted((name, other), key=list(named).index)
            raise ConfigError(f"parameter {second} shares memory with {first}: tie one Parameter object")


def _end(p: nn.Parameter) -> int:
    """Returns the address after the last element of `p`."""
    reach = sum((size - 1) * stride for size, stride in zip(p.shape, p.stride(), strict=True))
    return p.data_ptr() + (reach + 1) * p.element_size()
