"""Initial values of parameters, by MXNet's class names or as words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass
class Constant:
    value: float = 0.0

    def fill(self, tensor: Tensor) -> None:
        tensor.fill_(self.value)


class Zero(Constant):
    pass


class One(Constant):
    def __init__(self) -> None:
        super().__init__(1.0)


class Uniform:
    def fill(self, tensor: Tensor) -> None:
        tensor.uniform_(-0.07, 0.07)


def initializer_of(given: Any) -> Any:
    """Returns the initializer for a word, an object that is one, or None."""
    if isinstance(given, str):
        return {"zeros": Zero(), "ones": One()}[given]
    return given or Uniform()
