"""Parameters with an array and a gradient on each device."""

from __future__ import annotations

from typing import Any

import torch

from mxnet.context import Context, cpu
from mxnet.init import initializer_of
from mxnet.ndarray import NDArray, zeros


class Parameter:
    """A parameter. With stype "row_sparse" its rows come from a store before they are used."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        stype: str = "default",
        grad_stype: str = "default",
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
    ) -> None:
        self.name, self.shape, self.init = name, shape, init
        self._stype, self._grad_stype = stype, grad_stype
        self.lr_mult, self.wd_mult, self.grad_req = lr_mult, wd_mult, "write"
        self._trainer: Any = None
        self._data: dict[Context, NDArray] = {}
        self._deferred: tuple[Any, list[Context]] | None = None

    def _set_trainer(self, trainer: Any) -> None:
        if self._stype != "default" and self._trainer and trainer and self._trainer is not trainer:
            raise RuntimeError(f"Parameter {self.name} is of another trainer already: it is row_sparse")
        self._trainer = trainer

    # ---- values ------------------------------------------------------------------------------------------
    def initialize(self, init: Any = None, ctx: Any = None) -> None:
        contexts = list(ctx) if isinstance(ctx, list | tuple) else [ctx or cpu()]
        self._deferred = (self.init or init, contexts)
        self.finish(self.shape)

    def finish(self, shape: tuple[int, ...]) -> None:
        """Makes the arrays, as soon as all sizes are known."""
        if self._deferred is None or not all(shape):
            return
        (init, contexts), self._deferred, self.shape = self._deferred, None, shape
        first = zeros(shape)
        initializer_of(init).fill(first.tensor)
        for ctx in contexts:
            self._data[ctx] = NDArray(first.tensor.clone(), ctx, self._stype)
            self._data[ctx].attach_grad(self._grad_stype)

    @property
    def deferred(self) -> bool:
        return self._deferred is not None

    def set_data(self, values: torch.Tensor) -> None:
        """Replaces the values on all devices; a store that has updated them is left."""
        if self._trainer and self._trainer._kv_initialized and self._trainer._update_on_kvstore:
            self._trainer._reset_kvstore()
        for array in self._data.values():
            array.tensor.copy_(values)

    def list_ctx(self) -> list[Context]:
        return self._deferred[1] if self._deferred else list(self._data)

    def data(self, ctx: Context | None = None) -> NDArray:
        return self._data[ctx or self.list_ctx()[0]]

    def list_data(self) -> list[NDArray]:
        return list(self._data.values())

    def grad(self, ctx: Context | None = None) -> NDArray:
        grad = self.data(ctx).grad
        assert grad is not None
        return grad

    def list_grad(self) -> list[NDArray]:
        return [self.grad(ctx) for ctx in self._data]

    # ---- rows --------------------------------------------------------------------------------------------
    def row_sparse_data(self, row_id: NDArray) -> NDArray:
        """Gets these rows of the store's value for the device of `row_id`."""
        array = self._data[row_id.context]
        self._trainer._row_sparse_pull(self, array, row_id)
        return array

    def list_row_sparse_data(self, row_id: NDArray) -> list[NDArray]:
        for array in self._data.values():
            self._trainer._row_sparse_pull(self, array, row_id)
        return self.list_data()


class ParameterDict:
    """Parameters by name."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.held: dict[str, Parameter] = {}

    def __getitem__(self, name: str) -> Parameter:
        return self.held[name]

    def keys(self) -> list[str]:
        return list(self.held)

    def values(self) -> list[Parameter]:
        return list(self.held.values())

    def get(self, name: str, **kwargs: Any) -> Parameter:
        name = self.prefix + name
        return self.held.setdefault(name, Parameter(name, **kwargs))

    def initialize(self, init: Any = None, ctx: Any = None) -> None:
        for parameter in self.held.values():
            parameter.initialize(init, ctx)

    def save(self, filename: str) -> None:
        torch.save({name: p.list_data()[0].tensor.detach() for name, p in self.held.items()}, filename)

    def load(self, filename: str) -> None:
        for name, values in torch.load(filename, weights_only=True).items():
            self.held[name].set_data(values)
