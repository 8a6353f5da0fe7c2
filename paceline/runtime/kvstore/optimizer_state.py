"""Converts the state of a server's optimizer to what messages and files can carry: numbers, and float32 tensors by
name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from paceline.engine.vectors.flat import Flat
from paceline.runtime.kvstore.messages import PutState

_ROWS = "table."
"""Names of tensors of lazy rules begin with this; they are as high and wide as the table."""


def taken_apart(
    state: Mapping[str, Tensor | float | int],
) -> tuple[dict[str, float], dict[str, float], dict[str, Flat]]:
    """Returns the plain numbers of a rule's state, its tensors without a dimension, and all other tensors as
    vectors."""
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    numbers = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    single = {name: float(value) for name, value in tensors.items() if not value.dim()}
    return numbers, single, {name: Flat.copy_of(value) for name, value in tensors.items() if value.dim()}


def put_together(said: PutState, tensors: Mapping[str, Flat], length: int, width: int) -> dict[str, Any]:
    """Returns the state that a rule loads, [length] for vectors, or [length / width, width] for tables.

    Raises KeyError for a missing tensor, ValueError for one that does not fit.
    """
    state: dict[str, Any] = dict(said.numbers)
    state.update({name: torch.tensor(value) for name, value in said.single.items()})
    for name in said.names:
        v = tensors[name]
        if len(v) != length:
            raise ValueError(f"{name} has {len(v)} numbers for a key of {length}")
        state[name] = v.value().view(-1, width) if name.startswith(_ROWS) and width else v.value()
    if not all(math.isfinite(value) for value in said.numbers.values()):
        raise ValueError("a number is not finite")
    return state
