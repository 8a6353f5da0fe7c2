"""The state of a server's optimizer as messages carry it, and states that do not fit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from paceline.engine.vectors.flat import Flat
from paceline.runtime.kvstore.messages import PutState
from paceline.runtime.kvstore.optimizer_state import put_together, taken_apart


def put(**changed: Any) -> PutState:
    known: dict[str, Any] = {"numbers": {}, "single": {}, "names": ()}
    return PutState(**known | changed)


def test_what_is_taken_apart_is_put_together_again() -> None:
    state = {"lr": 0.1, "step": torch.tensor(7.0), "m": torch.arange(6.0), "table.v": torch.arange(6.0).view(3, 2)}
    numbers, single, tensors = taken_apart(state)
    assert (numbers, single, set(tensors)) == ({"lr": 0.1}, {"step": 7.0}, {"m", "table.v"})
    again = put_together(put(numbers=numbers, single=single, names=tuple(tensors)), tensors, length=6, width=2)
    assert again.keys() == state.keys()
    assert all(torch.equal(torch.as_tensor(again[name]), torch.as_tensor(value)) for name, value in state.items())


def test_a_tensor_that_is_missing_or_of_another_length_is_refused() -> None:
    with pytest.raises(KeyError):
        put_together(put(names=("m",)), {}, length=6, width=0)
    with pytest.raises(ValueError, match="m has 5 numbers for a key of 6"):
        put_together(put(names=("m",)), {"m": Flat.copy_of(torch.ones(5))}, length=6, width=0)


@pytest.mark.parametrize("wild", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_refused(wild: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        put_together(put(numbers={"lr": wild}), {}, length=6, width=0)
