"""Copies weights that are still arriving into a module's parameters when each is first used.

The forward pass of the first layers then goes on while the weights of the last are on their way. Who uses a parameter
is not guessed from the structure of the module. A parameter whose weights have not been copied yet is of a class of its
own, and torch reports every operation on it (`__torch_function__`), wherever it comes from:

    LazyWeights.begin     every parameter becomes of that class
    the first operation   waits for the numbers, copies them, makes it a plain Parameter again, and goes on
    LazyWeights.drop      the others become plain again with their old weights

So weights shared by several layers, layers that use another one's weights and layers that are left out need no special
case.

Accesses that do not go through Python are not reported: `fit` says which modules are loaded at once for that reason.
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
    """Returns True if all parts of `module` take their weights through Python: none was scripted or compiled."""
    scripted = torch.jit.ScriptModule
    for part in module.modules():
        if isinstance(part, scripted) or getattr(part, "_compiled_call_impl", None) is not None:
            return False
        if hasattr(part, "_orig_mod"):  # torch.compile(module)
            return False
    return all(type(p) is nn.Parameter for p in module.parameters())


class LazyWeights:
    """Brings the weights of `parameters`, which lie one after the other in `room`. Any thread may use them."""

    def __init__(self, parameters: Sequence[nn.Parameter], room: Tensor) -> None:
        self._parameters, self._room = parameters, room
        self._kind = _kind_for(self.bring)
        self._absent: dict[int, tuple[int, int]] = {}  # by identity: where in `room` the numbers will be
        self._w: ChunkedVector | None = None
        self._done: Callable[[int], None] = lambda writes: None
        self.arrived: Callable[[int, int], None] = lambda start, stop: None
        """Is called when the numbers from `start` to `stop` of `room` have their new weights, before anybody uses
        them."""
        self._writes = 0
        self._lock = threading.RLock()
        self._places: dict[int, tuple[int, int]] = {}
        at = 0
        for p in parameters:
            self._places[id(p)] = at, at + p.numel()
            at += p.numel()

    @property
    def absent(self) -> bool:
        """Returns True if there is a parameter without its new weights."""
        return bool(self._absent)

    def begin(self, w: ChunkedVector, done: Callable[[int], None]) -> None:
        """Makes `w` the weights. `done` is told how many writes it took, once all parameters have theirs."""
        with self._lock:
            self._w, self._done, self._writes = w, done, 0
            self._absent = dict(self._places)
            for p in self._parameters:
                p.__class__ = self._kind

    def bring(self, p: Tensor) -> None:
        """Waits until `p` has its weights. Raises PeerLost or TimedOut when they do not come."""
        with self._lock:
            place = self._absent.get(id(p))
            if place is None:
                return
            assert self._w is not None
            start, stop = place
            before = self._room._version
            try:
                self._w[start:stop].copy_into(self._room[start:stop])
            except (Stopped, Undone):  # the step's result is dropped anyway, so old weights do no harm
                self.drop()
                return
            except BaseException:
                self.drop()
                raise
            self._writes += self._room._version - before
            del self._absent[id(p)]
            p.__class__ = nn.Parameter
            self.arrived(start, stop)
            if not self._absent:
                self._w = None
                self._done(self._writes)

    def settle(self) -> None:
        """Brings all weights that are absent. Raises as `bring` does."""
        for p in self._parameters if self._absent else ():
            self.bring(p)

    def drop(self) -> None:
        """Leaves the parameters that have no new weights with the old ones."""
        with self._lock:
            for p in self._parameters if self._absent else ():
                p.__class__ = nn.Parameter
            self._absent, self._w = {}, None


_GETTERS = ("_version", "grad", "shape", "dtype", "device", "requires_grad", "is_leaf")
_SIZES = ("numel", "size", "dim", "stride")
"""What reads no numbers of a parameter, and so need not wait for them."""


def _kind_for(bring: Callable[[Tensor], None]) -> type[nn.Parameter]:
    """Returns a class of parameters that call `bring` before anything is done with their numbers."""
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
    """Returns the tensors of class `kind` among the arguments of a call, nested ones included."""
    if isinstance(arguments, kind):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif not isinstance(arguments, tuple | list):
        return []
    return [p for argument in arguments for p in _found(argument, kind)]
