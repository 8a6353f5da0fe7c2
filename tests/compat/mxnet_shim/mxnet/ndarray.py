"""Arrays: a torch tensor with a device's label, and a storage type.

A row_sparse array keeps all its rows, too, in a dense tensor; it becomes a sparse one on its way to a store.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mxnet.context import Context, cpu

torch.set_grad_enabled(False)  # but within autograd.record

_leaves: weakref.WeakSet[NDArray] = weakref.WeakSet()


class NDArray:
    """An array. `_fresh_grad`: a backward pass has written its gradient since the last step."""

    def __init__(self, tensor: Tensor, ctx: Context | None = None, stype: str = "default") -> None:
        self.tensor, self.context, self.stype = tensor, ctx or cpu(), stype
        self.grad: NDArray | None = None
        self._fresh_grad = False

    ctx = property(lambda self: self.context)
    shape = property(lambda self: tuple(self.tensor.shape))
    size = property(lambda self: self.tensor.numel())

    @property
    def indices(self) -> NDArray:
        """Returns the numbers of the rows that are not zero."""
        return self._like((self.tensor != 0).flatten(1).any(1).nonzero()[:, 0])

    def _like(self, tensor: Tensor) -> NDArray:
        return NDArray(tensor, self.context)

    # ---- numbers -----------------------------------------------------------------------------------------
    def asnumpy(self) -> np.ndarray:
        return self.tensor.detach().numpy().copy()

    def __add__(self, other: Any) -> NDArray:
        return self._like(self.tensor + tensor_of(other))

    def __sub__(self, other: Any) -> NDArray:
        return self._like(self.tensor - tensor_of(other))

    def __mul__(self, other: Any) -> NDArray:
        return self._like(self.tensor * tensor_of(other))

    def __radd__(self, other: Any) -> NDArray:
        return self + other

    def __rmul__(self, other: Any) -> NDArray:
        return self * other

    def __iadd__(self, other: Any) -> NDArray:
        self.tensor += tensor_of(other)
        return self

    def __eq__(self, other: object) -> NDArray:  # type: ignore[override]
        return self._like((self.tensor == tensor_of(other)).to(self.tensor.dtype))

    __hash__ = object.__hash__

    def __getitem__(self, at: Any) -> NDArray:
        part = self.tensor[at]
        return self._like(part if part.dim() else part.view(1))  # MXNet's arrays have one dimension at least

    def __setitem__(self, at: Any, value: Any) -> None:
        self.tensor[at] = tensor_of(value)

    # ---- form --------------------------------------------------------------------------------------------
    def reshape(self, shape: Any) -> NDArray:
        return self._like(self.tensor.reshape([int(n) for n in shape]))

    def astype(self, dtype: Any) -> NDArray:
        return self._like(self.tensor.to(dtype_of(dtype)))

    def tostype(self, stype: str) -> NDArray:
        return NDArray(self.tensor.clone(), self.context, stype)

    def copyto(self, ctx: Context) -> NDArray:
        return NDArray(self.tensor.clone(), ctx, self.stype)

    as_in_context = copyto

    # ---- gradients ---------------------------------------------------------------------------------------
    def attach_grad(self, stype: str) -> None:
        self.tensor.requires_grad_(True)
        self.grad = NDArray(torch.zeros_like(self.tensor), self.context, stype)
        _leaves.add(self)

    def backward(self) -> None:
        """Writes the gradients of the sum of this array; arrays that are not in it keep theirs."""
        torch.autograd.backward(self.tensor, torch.ones_like(self.tensor))
        for leaf in _leaves:
            if leaf.tensor.grad is not None and leaf.grad is not None:
                leaf.grad.tensor.copy_(leaf.tensor.grad)
                leaf.tensor.grad, leaf._fresh_grad = None, True


def tensor_of(value: Any) -> Any:
    """Returns the tensor of an array, or a tensor of a numpy one; numbers stay as they are."""
    if isinstance(value, NDArray):
        return value.tensor
    return torch.from_numpy(value).float() if isinstance(value, np.ndarray) else value


def dtype_of(dtype: Any) -> torch.dtype:
    return {"float16": torch.float16, "float32": torch.float32}[np.dtype(dtype).name]


def full(
    shape: Any, value: float, ctx: Context | None = None, dtype: Any = "float32", stype: str = "default"
) -> NDArray:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return NDArray(torch.full(shape, float(value), dtype=dtype_of(dtype)), ctx, stype)


def zeros(shape: Any, ctx: Context | None = None, dtype: Any = "float32", stype: str = "default") -> NDArray:
    return full(shape, 0.0, ctx, dtype, stype)


def ones(shape: Any, ctx: Context | None = None, dtype: Any = "float32", stype: str = "default") -> NDArray:
    return full(shape, 1.0, ctx, dtype, stype)


empty = zeros


def array(values: Any, ctx: Context | None = None, dtype: Any = "float32") -> NDArray:
    values = values.asnumpy() if isinstance(values, NDArray) else np.asarray(values)
    return NDArray(torch.from_numpy(values.astype(np.float32)).to(dtype_of(dtype)), ctx)


def arange(start: float, stop: float, ctx: Context | None = None, dtype: Any = "float32") -> NDArray:
    """Returns float32, whatever is asked for: only row numbers are made with it."""
    return NDArray(torch.arange(start, stop, dtype=torch.float32), ctx)


def random_uniform(low: float, high: float, shape: Any, ctx: Context | None = None) -> NDArray:
    return NDArray(torch.empty(tuple(shape)).uniform_(low, high), ctx)


def random_normal(shape: Any, ctx: Context | None = None) -> NDArray:
    return NDArray(torch.randn(tuple(shape)), ctx)


def Embedding(data: NDArray, weight: NDArray, **sizes: Any) -> NDArray:
    return NDArray(torch.nn.functional.embedding(data.tensor.long(), weight.tensor), data.context)


def waitall() -> None:
    """All operations are done when they return."""


def _sparse_zeros(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = "float32") -> NDArray:
    return zeros(shape, ctx, dtype, stype)


sparse = SimpleNamespace(zeros=_sparse_zeros)
