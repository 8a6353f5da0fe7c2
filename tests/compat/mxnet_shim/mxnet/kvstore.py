"""`mx.kv.create`: a store of `paceline.kvstore` that takes and gives arrays in the shape of MXNet's.

MXNet                       here
push, pull, pushpull, ...   the same call of the store, with the arrays' tensors
set_optimizer, distributed  the same, by name and numbers
set_optimizer, local        `_set_updater` with MXNet's optimizer, as MXNet does it
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor

from mxnet.base import MXNetError
from mxnet.ndarray import NDArray
from mxnet.optimizer import Optimizer, Updater
from paceline import kvstore
from paceline.compat.mxnet.arguments import rows_that_are_not_zero
from paceline.core.errors import PacelineError


def _mxnets(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the store's errors MXNet's."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except PacelineError as error:
            raise MXNetError(str(error)) from error

    return called


def _sent(value: Any) -> Any:
    """Returns the tensors of arrays; a row_sparse one is sent as the rows that it has."""
    if isinstance(value, list | tuple):
        return [_sent(one) for one in value]
    tensor = value.tensor.data  # not detach(): what a store writes shall not end a recorded operation
    return rows_that_are_not_zero(tensor) if value.stype == "row_sparse" else tensor


def _flat(value: Any) -> list[NDArray]:
    return [one for given in value for one in _flat(given)] if isinstance(value, list | tuple) else [value]


def _received(out: Any, tensors: Any) -> None:
    """Writes what came into sparse arrays, which keep dense tensors."""
    if isinstance(out, list | tuple):
        for one, tensor in zip(out, tensors, strict=True):
            _received(one, tensor)
    elif isinstance(tensors, Tensor) and tensors.is_sparse:
        out.tensor.data.copy_(tensors.to_dense())


class KVStoreBase:
    """What stores have in common, and which ones there are besides Paceline's."""

    OPTIMIZER = "optimizer"
    kv_registry: ClassVar[dict[str, type[KVStoreBase]]] = {}

    @staticmethod
    def register(kind: type[KVStoreBase]) -> type[KVStoreBase]:
        KVStoreBase.kv_registry[kind.__name__.lower()] = kind
        return kind

    def set_optimizer(self, optimizer: Optimizer) -> None:
        raise NotImplementedError

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        raise NotImplementedError

    def load_optimizer_states(self, fname: str) -> None:
        raise NotImplementedError


@KVStoreBase.register
class TestStore(KVStoreBase):
    """MXNet's store for tests of its registry: it sums in place, and has no optimizer. Nothing of Paceline is in it."""

    type, rank, num_workers = "teststore", 0, 1

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False

    def broadcast(self, key: Any, value: NDArray, out: Any, priority: int = 0) -> None:
        for one in _flat(out):
            one[:] = value

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        whole = sum(one.tensor for one in _flat(value))
        for one in _flat(value if out is None else out):
            one.tensor.copy_(whole)


class KVStore(KVStoreBase):
    """A store of Paceline's."""

    def __init__(self, name: str) -> None:
        self._store = kvstore.create(name)
        self._updater: Updater | None = None

    type = property(lambda self: self._store.type)
    rank = property(lambda self: self._store.rank)
    num_workers = property(lambda self: self._store.num_workers)

    def is_capable(self, capability: str) -> bool:
        return self._store.is_capable(capability)

    @_mxnets
    def init(self, key: Any, value: Any) -> None:
        self._store.init(key, _sent(value))

    @_mxnets
    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        self._store.push(key, _sent(value), priority)

    @_mxnets
    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        tensors = _sent(out)
        self._store.pull(key, tensors, priority, ignore_sparse)
        _received(out, tensors)

    @_mxnets
    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        self._store.pushpull(key, _sent(value), None if out is None else _sent(out), priority)

    @_mxnets
    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        self._store.broadcast(key, _sent(value), _sent(out), priority)

    @_mxnets
    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Refuses dense arrays, as MXNet does; the store itself fills them, too."""
        if any(one.stype != "row_sparse" for one in _flat(out)):
            raise MXNetError("row_sparse_pull is for arrays of stype row_sparse")
        tensors = _sent(out)
        ids = _sent(row_ids)
        self._store.row_sparse_pull(key, tensors, priority, row_ids=ids)
        _received(out, tensors)

    @_mxnets
    def set_gradient_compression(self, compression: dict[str, Any]) -> None:
        self._store.set_gradient_compression(compression)

    def _set_updater(self, updater: Callable[[Any, NDArray, NDArray], Any]) -> None:
        self._store._set_updater(lambda key, recv, stored: updater(key, NDArray(recv), NDArray(stored)))

    @_mxnets
    def set_optimizer(self, optimizer: Optimizer) -> None:
        if "dist" not in self.type:
            self._updater = Updater(optimizer)
            self._set_updater(self._updater)
        elif optimizer.name == "test":  # w + rescale g is a step of SGD up the gradient
            self._store.set_optimizer("sgd", lr=1.0, rescale_grad=-optimizer.rescale_grad)
        else:
            mults = {key: (p.lr_mult, p.wd_mult) for key, p in optimizer.param_dict.items()}
            self._store.set_optimizer(
                optimizer.name,
                lr=optimizer.lr,
                momentum=optimizer.momentum,
                wd=optimizer.wd,
                rescale_grad=optimizer.rescale_grad,
                lr_mult={key: lr for key, (lr, _) in mults.items()},
                wd_mult={key: wd for key, (_, wd) in mults.items()},
            )

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        assert self._updater is not None, "Cannot save states for distributed training"
        with open(fname, "wb") as file:
            file.write(self._updater.get_states())

    def load_optimizer_states(self, fname: str) -> None:
        assert self._updater is not None, "Cannot load states for distributed training"
        with open(fname, "rb") as file:
            self._updater.set_states(file.read())


def create(name: str = "local") -> Any:
    kind = KVStoreBase.kv_registry.get(name.lower())
    return kind() if kind else KVStore(name.lower())
