"""Optimizers of MXNet: SGD, and the one of its tests; and what applies one to the arrays of a worker or a local store.

MXNet's momentum has the learning rate in it, m <- mu m - lr g; w <- w + m, unlike torch's.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch

from mxnet.ndarray import NDArray


class Optimizer:
    """The numbers of an optimizer. `param_dict` has the parameters by key, with multipliers of their own."""

    name = ""

    def __init__(
        self,
        learning_rate: float = 0.01,
        rescale_grad: float = 1.0,
        wd: float = 0.0,
        momentum: float = 0.0,
        lr_scheduler: Callable[[int], float] | None = None,
        param_dict: dict[int, Any] | None = None,
        multi_precision: bool = False,
    ) -> None:
        self.lr, self.rescale_grad, self.wd, self.momentum = learning_rate, rescale_grad, wd, momentum
        self.lr_scheduler, self.param_dict = lr_scheduler, param_dict or {}
        self.counts: dict[Any, int] = {}

    @property
    def learning_rate(self) -> float:
        updates = max(self.counts.values(), default=0)
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(updates)

    def set_learning_rate(self, lr: float) -> None:
        self.lr = lr

    def _get_lr(self, key: Any) -> float:
        return self.learning_rate * getattr(self.param_dict.get(key), "lr_mult", 1.0)

    def _get_wd(self, key: Any) -> float:
        return self.wd * getattr(self.param_dict.get(key), "wd_mult", 1.0)

    def update(self, key: Any, weight: NDArray, grad: NDArray, state: NDArray) -> None:
        raise NotImplementedError


class SGD(Optimizer):
    name = "sgd"

    def update(self, key: Any, weight: NDArray, grad: NDArray, state: NDArray) -> None:
        self.counts[key, id(state)] = self.counts.get((key, id(state)), 0) + 1  # each device counts by itself
        g = grad.tensor * self.rescale_grad + weight.tensor * self._get_wd(key)
        state.tensor.mul_(self.momentum).sub_(g * self._get_lr(key))
        weight.tensor.add_(state.tensor)


class Test(Optimizer):
    """w <- w + rescale_grad g, so that sums can be told exactly."""

    name = "test"

    def update(self, key: Any, weight: NDArray, grad: NDArray, state: NDArray) -> None:
        weight.tensor.add_(grad.tensor * self.rescale_grad)
        state.tensor.copy_(weight.tensor)


def create(name: str, **numbers: Any) -> Optimizer:
    return {"sgd": SGD, "test": Test}[name.lower()](**numbers)


class Updater:
    """Applies an optimizer, with a state for each key."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, NDArray] = {}

    def __call__(self, key: Any, grad: NDArray, weight: NDArray) -> None:
        if key not in self.states:
            self.states[key] = NDArray(torch.zeros_like(weight.tensor))
        self.optimizer.update(key, weight, grad, self.states[key])

    def get_states(self) -> bytes:
        """Returns states and optimizer, without the parameters: a file of the test's own, read by the test alone."""
        held, self.optimizer.param_dict = self.optimizer.param_dict, {}
        arrays = {key: state.asnumpy() for key, state in self.states.items()}
        data = pickle.dumps((arrays, self.optimizer))
        self.optimizer.param_dict = held
        return data

    def set_states(self, data: bytes) -> None:
        arrays, self.optimizer = pickle.loads(data)
        self.states = {key: NDArray(torch.from_numpy(numbers)) for key, numbers in arrays.items()}


get_updater = Updater
