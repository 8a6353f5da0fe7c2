"""Weights that are still arriving, copied into a module's parameters when somebody first looks at each.

The forward pass of the first layers then goes on while the weights of the last are on their way. Who looks is not
guessed from the structure of the module: a parameter whose weights have not been copied yet is of a class of its own,
which torch tells of every operation on it (`__torch_function__`), wherever it comes from. It copies, becomes a plain
Parameter again, and the operation goes on. Weights shared by several layers, layers that use another one's weights and
layers that are left out are all the same to it.

What reaches the numbers without Python cannot be told: `fit` says which modules are left alone for that reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.errors import Stopped, Undone
from paceline.engine.vectors.chunked import ChunkedVector


def fit(module: nn.Module) -> bool:
    """Do all parts of `module` take their weights through Python? Not those that were scripted or compiled."""
    scripted = torch.jit.ScriptModule
    for part in module.modules():
        if isinstance(part, scripted) or getattr(part, "_compiled_call_impl", None) is not None:
            return False
        if hasattr(part, "_orig_mod"):  # torch.compile(module)
            return False
    return all(type(p) is nn.Parameter for p in module.parameters())


class LazyWeights:
    """Of `parameters`, which lie one after the other in `room`. Any thread may look."""

    def __init__(self, parameters: Sequence[nn.Parameter], room: Tensor) -> None:
        self._parameters, self._room = parameters, room
        self._kind = _kind_for(self.bring)
        self._absent: dict[int, tuple[int, int]] = {}  # by identity: where in `room` the numbers will be
        self._w: ChunkedVector | None = None
        self._done: Callable[[int], None] = lambda writes: None
        self._writes = 0
        self._lock = threading.RLock()
        self._places: dict[int, tuple[int, int]] = {}
        at = 0
        for p in parameters:
            self._places[id(p)] = at, at + p.numel()
            at += p.numel()

    @property
    def absent(self) -> bool:
        """Is there a parameter without its new weights?"""
        return bool(self._absent)

    def begin(self, w: ChunkedVector, done: Callable[[int], None]) -> None:
        """From now on the weights are `w`. `done` hears how many writes it took, once all parameters have theirs."""
        with self._lock:
            self._w, self._done, self._writes = w, done, 0
            self._absent = dict(self._places)
            for p in self._parameters:
                p.__class__ = self._kind

    def bring(self, p: Tensor) -> None:
        """See to it that `p` has its weights. Raises PeerLost or TimedOut when they do not come."""
        with self._lock:
            place = self._absent.get(id(p))
            if place is None:
                return
            assert self._w is not None
            start, stop = place
            before = self._room._version
            try:
                self._w[start:stop].copy_into(self._room[start:stop])
            except (Stopped, Undone):  # nobody wants what comes of the old weights
                self.drop()
                return
            except BaseException:
                self.drop()
                raise
            self._writes += self._room._version - before
            del self._absent[id(p)]
            p.__class__ = nn.Parameter
            if not self._absent:
                self._w = None
                self._done(self._writes)

    def settle(self) -> None:
        """Bring all that is absent. Raises as `bring` does."""
        for p in self._parameters if self._absent else ():
            self.bring(p)

    def drop(self) -> None:
        """Leave the parameters that have no new weights with the old ones."""
        with self._lock:
            for p in self._parameters if self._absent else ():
                p.__class__ = nn.Parameter
            self._absent, self._w = {}, None


_GETTERS = ("_version", "grad", "shape", "dtype", "device", "requires_grad", "is_leaf")
_SIZES = ("numel", "size", "dim", "stride")


def _kind_for(bring: Callable[[Tensor], None]) -> type[nn.Parameter]:
    """A class of parameters that call `bring` before anything is done with their numbers."""
    harmless = {getattr(Tensor, name).__get__ for name in _GETTERS} | {getattr(Tensor, name) for name in _SIZES}

    class Parameter(nn.Parameter):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in harmless:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **(kwargs or {}))
            for p in _found((args, kwargs), cls):
                bring(p)
            return func(*args, **(kwargs or {}))

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            bring(self)  # which makes it a plain Parameter
            return self.__deepcopy__(memo)

        def __reduce_ex__(self, protocol: Any) -> Any:
            bring(self)
            return self.__reduce_ex__(protocol)

    return Parameter


def _found(arguments: Any, kind: type[Tensor]) -> list[Tensor]:
    """Returns those of `kind` in what a function was called with."""
    if isinstance(arguments, kind):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif not isinstance(arguments, tuple | list):
        return []
    return [p for argument in arguments for p in _found(argument, kind)]
