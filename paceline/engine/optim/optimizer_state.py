"""Makes one vector of an optimizer's state, so that it can travel, be averaged, and be put back.

    SGD, LARS with momentum    v           as long as the model
    Adam, AdamW, LAMB          m, v, t     twice the model and one number: the moments, and the count of steps
    Muon, with AdamW           m, v, t     as Adam; of the matrices m is Muon's momentum, and v is zero

The order within each part is that of the model's vector, whether the optimizer works on the flat parameter or on the
module's own ones; so the memory of either fits the other. Parameters that it does not train have zeros.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.engine.model.several_models import class_of
from paceline.engine.muon import MuonWithAdamW
from paceline.engine.optim.lars_lamb import LAMB, LARS
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

STEP = "step"
_MOMENTS: dict[type, tuple[str, ...]] = {
    torch.optim.SGD: ("momentum_buffer",),
    torch.optim.Adam: ("exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("exp_avg", "exp_avg_sq"),
    LARS: ("momentum_buffer",),
    LAMB: ("exp_avg", "exp_avg_sq"),
    MuonWithAdamW: ("exp_avg", "exp_avg_sq"),
}
_OF_MUON = {"exp_avg": "momentum_buffer"}
"""What Muon calls its own vector, which stands in the place of a moment of Adam."""


class OptimizerState:
    """Reads and writes the state of `optimizer`, over `parameters` in the order of the model's vector."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._optimizer = optimizer
        self._parameters = parameters
        self._groups = {p: group for group in optimizer.param_groups for p in group["params"]}
        known = class_of(optimizer) in _MOMENTS
        # Some optimizers, such as Adagrad, have a state before their first step.
        self._first = {} if known else {p: copy.deepcopy(own) for p, own in optimizer.state.items()}

    def reset(self) -> None:
        """Puts the optimizer into the state that it had before its first step."""
        self._optimizer.state.clear()
        self._optimizer.state.update({p: copy.deepcopy(own) for p, own in self._first.items()})

    def show(self) -> Flat | None:
        """Returns a copy of the state; None for SGD without momentum, which has none.

        Raises ConfigError for other optimizers.
        """
        names = self._names()
        if not names:
            return None
        out = spare(self._length(names), self._parameters[0].device).zero_()
        for p, name, room in self._rooms(out, names):
            found = self._optimizer.state.get(p, {}).get(name)
            if isinstance(found, Tensor):
                room.copy_(found)
        return Flat(out)

    def recall(self, memory: Flat) -> None:
        """Takes over what `show` gave, here or elsewhere. Raises ConfigError for a memory of another kind."""
        names = self._names()
        if len(memory) != self._length(names):
            raise ConfigError(
                f"a memory of {len(memory)} numbers does not fit {type(self._optimizer).__name__}, which remembers "
                f"{self._length(names)}: give all workers the same optimizer"
            )
        numbers = memory.value().to(self._parameters[0].device)
        self.reset()
        for p, name, room in self._rooms(numbers, names):
            group = self._groups.get(p)
            if group is not None and p.requires_grad:
                # torch keeps the count of steps on the host, unless the kernel that reads it runs on the device.
                on_device = name != STEP or group.get("fused") or group.get("capturable")
                dtype = room.dtype if name == STEP else p.dtype
                self._optimizer.state[p][name] = room.to(p.device if on_device else "cpu", dtype, copy=True)

    def _names(self) -> tuple[str, ...]:
        """Returns the names of the vectors that the optimizer remembers, and of its step.

        Raises ConfigError for an optimizer whose memory is not known here.
        """
        names = _MOMENTS.get(class_of(self._optimizer))
        if names is None:
            kind = type(self._optimizer).__name__
            raise ConfigError(
                f"what {kind} remembers cannot be shown: use SGD, Adam, AdamW, LARS or LAMB, or let it be kept"
            )
        if names == ("momentum_buffer",) and not any(g["momentum"] for g in self._optimizer.param_groups):
            return ()
        return names if len(names) == 1 else (*names, STEP)

    def _length(self, names: tuple[str, ...]) -> int:
        """Returns the numbers of the vector: one for each parameter and name, and one for the step."""
        numbers = sum(p.numel() for p in self._parameters)
        return sum(1 if name == STEP else numbers for name in names)

    def _rooms(self, whole: Tensor, names: tuple[str, ...]) -> Iterator[tuple[nn.Parameter, str, Tensor]]:
        """Yields parameter, its name of the state, and the part of `whole` for it; the count of steps is one for all.

        What an optimizer does not have of a parameter is left out.
        """
        at = 0
        for name in names:
            for p in self._parameters:
                by_muon = "ns_steps" in self._groups.get(p, ())
                own = _OF_MUON.get(name, "") if by_muon else name
                room = whole[-1] if name == STEP else whole[at : at + p.numel()].view(p.shape)
                at += p.numel() if name != STEP else 0
                if own:
                    yield p, own, room
