"""The state of an optimizer, packed into vectors and numbers, comes back with its types and shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.engine.optim.packed_state import pack, pack_groups, unpack, unpack_groups

PARAMETERS = [torch.zeros(2, 3), torch.zeros(4)]
LENGTHS = [6, 4]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    return type(one) is type(other) and one == other


def assert_comes_back(states: list[dict[str, Any]]) -> dict[str, Any]:
    packed = pack(states, LENGTHS)
    found = unpack(packed, PARAMETERS)
    assert [state.keys() for state in found] == [state.keys() for state in states]
    assert all(
        same(value, back[name]) for state, back in zip(states, found, strict=True) for name, value in state.items()
    )
    return packed


def test_tensors_as_large_as_their_parameters_lie_in_one_vector() -> None:
    states = [{"m": torch.arange(6.0).view(2, 3)}, {"m": torch.arange(4.0)}]
    packed = assert_comes_back(states)
    assert packed["m"].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]


def test_a_parameter_without_such_a_state_has_zeros_there_and_none_afterwards() -> None:
    packed = assert_comes_back([{}, {"m": torch.ones(4)}])
    assert packed["m"].tolist() == [0] * 6 + [1] * 4


def test_numbers_keep_their_types_and_scalars_theirs() -> None:
    states: list[dict[str, Any]] = [
        {"step": torch.tensor(3.0), "count": 7, "on": True, "rate": 0.5},
        {"step": torch.tensor(9, dtype=torch.int64), "off": False},
    ]
    assert_comes_back(states)


def test_tensors_of_other_shapes_follow_one_another_in_as_many_vectors_as_they_need() -> None:
    """As Adafactor's rows and columns, or a preconditioner that is larger than the model."""
    states: list[dict[str, Any]] = [
        {"row": torch.arange(2.0), "whitening": torch.arange(9.0).view(3, 3)},
        {"mask": torch.tensor([True, False]), "m": torch.arange(4.0, 8.0)},
    ]
    packed = assert_comes_back(states)
    assert {name for name in packed if name.startswith("packed ")} == {"packed 0", "packed 1"}
    assert all(len(packed[name]) == sum(LENGTHS) for name in ("packed 0", "packed 1", "m"))


def test_what_is_neither_tensor_nor_number_is_left_out() -> None:
    assert pack([{"name": "adam", "groups": [1]}, {}], LENGTHS) == {}


def test_states_of_half_precision_come_back_in_it() -> None:
    assert_comes_back([{"m": torch.tensor([[0.5, 1.5, 2.5]] * 2, dtype=torch.bfloat16)}, {}])


def test_what_an_optimizer_counts_in_its_groups_comes_back_and_options_stay_those_of_the_script() -> None:
    begun = [{"lr": 0.1, "k": 0, "sum": 0.0, "trains": False, "decay": 0.1}, {"lr": 0.1, "k": 0}]
    now = [{"lr": 0.05, "k": 7, "sum": 0.25, "trains": True, "decay": 0.1, "params": []}, {"lr": 0.1, "k": 0}]
    packed = pack_groups(now, begun)
    assert packed == {"group 0/k/int": 7.0, "group 0/sum/float": 0.25, "group 0/trains/bool": 1.0}
    fresh = [{"lr": 0.3, "k": 0, "sum": 0.0, "trains": False, "decay": 0.2}, {"lr": 0.1, "k": 0}]
    unpack_groups({**packed, "group 5/k/int": 1.0}, fresh)
    assert fresh[0] == {"lr": 0.3, "k": 7, "sum": 0.25, "trains": True, "decay": 0.2}
    assert isinstance(fresh[0]["k"], int)
    assert fresh[0]["trains"] is True
