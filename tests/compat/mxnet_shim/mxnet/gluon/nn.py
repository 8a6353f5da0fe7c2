"""Blocks: Dense and Sequential."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mxnet.gluon.parameter import ParameterDict
from mxnet.init import Zero
from mxnet.ndarray import NDArray


class Block:
    """Has parameters of its own, and blocks as attributes or added ones."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.params = ParameterDict(prefix)
        self.children: list[Block] = []

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Block):
            self.children.append(value)
        super().__setattr__(name, value)

    @contextmanager
    def name_scope(self) -> Iterator[None]:
        yield

    def collect_params(self) -> ParameterDict:
        found = ParameterDict(self.prefix)
        for block in (self, *self.children):
            found.held.update(block.params.held if block is self else block.collect_params().held)
        return found

    def initialize(self, init: Any = None, ctx: Any = None) -> None:
        self.collect_params().initialize(init, ctx)

    def __call__(self, x: NDArray) -> NDArray:
        return self.forward(x)

    def forward(self, x: NDArray) -> NDArray:
        raise NotImplementedError


class Sequential(Block):
    def add(self, block: Block) -> None:
        self.children.append(block)

    def forward(self, x: NDArray) -> NDArray:
        for block in self.children:
            x = block(x)
        return x


class Dense(Block):
    """x w' + b. Without `in_units` the size of w is known at the first pass."""

    def __init__(
        self,
        units: int,
        in_units: int = 0,
        weight_initializer: Any = None,
        use_bias: bool = True,
        prefix: str = "dense_",
    ) -> None:
        super().__init__(prefix)
        self.weight = self.params.get("weight", shape=(units, in_units), init=weight_initializer)
        self.bias = self.params.get("bias", shape=(units,), init=Zero()) if use_bias else None

    def forward(self, x: NDArray) -> NDArray:
        flat = x.tensor.flatten(1)
        self.weight.finish((self.weight.shape[0], flat.shape[1]))
        y = flat @ self.weight.data(x.context).tensor.T
        return NDArray(y + self.bias.data(x.context).tensor if self.bias else y, x.context)
