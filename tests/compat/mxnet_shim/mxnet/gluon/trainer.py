"""Gluon's Trainer: which store it makes, who makes the updates, and a step.

weights, gradients             store of a name                  updates in the store
sparse, sparse                 always                           always
dense, sparse                  with several devices, or dist*   in dist* only, or as asked
dense, dense                   with several devices, or dist*   unless asked otherwise; dist_async always
"""

from __future__ import annotations

import os
from typing import Any

from mxnet import kvstore as stores
from mxnet import optimizer as optimizers
from mxnet.gluon.parameter import Parameter, ParameterDict
from mxnet.ndarray import NDArray


class Trainer:
    """Makes steps of an optimizer with gradients of several devices, and of several workers by a store."""

    def __init__(
        self,
        params: Any,
        optimizer: str,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: Any = "device",
        update_on_kvstore: bool | None = None,
    ) -> None:
        if isinstance(params, ParameterDict | dict):
            params = [params[name] for name in sorted(params.keys())]
        self._params: list[Parameter] = list(params)
        for parameter in self._params:
            parameter._set_trainer(self)
        self._contexts = self._params[0].list_ctx()
        self._asked, self._asked_store = update_on_kvstore, kvstore
        by_index = dict(enumerate(self._params))
        self._optimizer = optimizers.create(optimizer, param_dict=by_index, **(optimizer_params or {}))
        self._updaters = [optimizers.get_updater(self._optimizer) for _ in self._contexts]
        self._scale = self._optimizer.rescale_grad
        self._kvstore: Any = None
        self._reset_kvstore()

    @property
    def learning_rate(self) -> float:
        return self._optimizer.learning_rate

    # ---- the store ---------------------------------------------------------------------------------------
    def _reset_kvstore(self) -> None:
        if self._kvstore and "dist" in self._kvstore.type:
            raise RuntimeError("Cannot reset distributed KVStore.")
        self._kvstore = self._update_on_kvstore = None
        self._kv_initialized = self._distributed = False
        self._params_to_init = list(self._params)

    def _init_kvstore(self) -> None:
        sparse_weights = any(p._stype != "default" for p in self._params)
        sparse_grads = any(p._grad_stype != "default" for p in self._params)
        store = self._made(always=sparse_weights)
        self._distributed = store is not None and "dist" in store.type
        update = self._where(store, sparse_weights, sparse_grads)
        if store is not None and update:
            store.set_optimizer(self._optimizer)
        self._kvstore, self._update_on_kvstore = store, update if store is not None else None
        self._kv_initialized = True

    def _made(self, *, always: bool) -> Any:
        """Returns the store, or None where there is one device and no other worker."""
        given = self._asked_store
        if not isinstance(given, str):
            return given
        return stores.create(given) if always or "dist" in given or len(self._contexts) > 1 else None

    def _where(self, store: Any, sparse_weights: bool, sparse_grads: bool) -> bool:
        """Returns whether updates are made in the store. Raises ValueError where what is asked for cannot be."""
        asked = self._asked
        if sparse_weights:
            usual, only = True, True
        elif sparse_grads:
            usual, only = self._distributed, True if self._distributed else None
        else:
            usual = bool(int(os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1")))
            only = True if self._distributed and "async" in store.type else None
        if store is not None and not store.is_capable("optimizer"):
            usual, only = False, False
        if only is not None and asked is not None and asked is not only:
            raise ValueError(f"update_on_kvstore={asked} does not go with {store.type} and these parameters")
        return only if only is not None else usual if asked is None else asked

    def _init_params(self) -> None:
        """Gives the store the first value of every parameter whose sizes are known."""
        waiting = []
        for parameter in self._params_to_init:
            if parameter.deferred:
                waiting.append(parameter)
            elif self._kvstore:
                arrays, index = parameter.list_data(), self._params.index(parameter)
                if parameter._stype != "default":
                    self._kvstore.init(index, arrays[0])
                else:
                    self._kvstore.broadcast(index, arrays[0], arrays)
        self._params_to_init = waiting

    def _ready(self) -> None:
        if not self._kv_initialized:
            self._init_kvstore()
        if self._params_to_init:
            self._init_params()

    def _row_sparse_pull(self, parameter: Parameter, out: NDArray, row_id: NDArray) -> None:
        self._ready()
        self._kvstore.row_sparse_pull(self._params.index(parameter), out=out, row_ids=row_id)

    # ---- steps -------------------------------------------------------------------------------------------
    def step(self, batch_size: int) -> None:
        self._optimizer.rescale_grad = self._scale / batch_size
        self._ready()
        self._reduce()
        self._update()

    def allreduce_grads(self) -> None:
        self._ready()
        assert not self._update_on_kvstore, "allreduce_grads() is for update_on_kvstore=False"
        self._reduce()

    def update(self, batch_size: int) -> None:
        self._ready()
        assert not self._update_on_kvstore, "update() is for update_on_kvstore=False"
        self._optimizer.rescale_grad = self._scale / batch_size
        self._update()

    def _reduce(self) -> None:
        """Sums the gradients of all devices and workers; where the store makes the updates, gets the new values."""
        if not self._kvstore:
            return
        for index, parameter in enumerate(self._params):
            grads = parameter.list_grad()
            into = parameter.list_data() if self._update_on_kvstore else grads
            if parameter._grad_stype == "default":
                self._kvstore.pushpull(index, grads, out=into, priority=-index)
                continue
            self._kvstore.push(index, grads, priority=-index)
            if parameter._stype == "default":
                self._kvstore.pull(index, into, priority=-index, ignore_sparse=self._distributed)

    def _update(self) -> None:
        for index, parameter in enumerate(self._params):
            arrays = parameter.list_data()
            if not all(array._fresh_grad for array in arrays):
                raise UserWarning(f"the gradient of {parameter.name} is that of the step before")
            for updater, array, grad in zip(self._updaters, arrays, parameter.list_grad(), strict=True):
                array._fresh_grad = False
                if not self._update_on_kvstore:
                    updater(index, grad, array)

    # ---- files -------------------------------------------------------------------------------------------
    def save_states(self, fname: str) -> None:
        self._ready()
        if self._update_on_kvstore:
            self._kvstore.save_optimizer_states(fname, dump_optimizer=True)
            return
        with open(fname, "wb") as file:
            file.write(self._updaters[0].get_states())

    def load_states(self, fname: str) -> None:
        self._ready()
        if self._update_on_kvstore:
            self._kvstore.load_optimizer_states(fname)
            self._optimizer = self._kvstore._updater.optimizer
        else:
            with open(fname, "rb") as file:
                states = file.read()
            for updater in self._updaters:
                updater.set_states(states)
                updater.optimizer = self._updaters[0].optimizer
            self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))
