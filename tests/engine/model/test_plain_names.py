"""Compiled and plain models have the same names, in comparisons and in files."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.plain_names import compared, in_names_of, plain_state


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def compiled() -> nn.Module:
    return torch.compile(plain(), backend="eager")  # type: ignore[return-value]


def compiled_within() -> nn.Module:
    model = plain()
    model[0] = torch.compile(model[0], backend="eager")  # type: ignore[assignment]
    return model


def in_data_parallel() -> nn.Module:
    return nn.DataParallel(compiled_within())


WRAPPED = [compiled, compiled_within, in_data_parallel]


@pytest.mark.parametrize("make", WRAPPED)
def test_a_wrapped_model_is_the_same_model_and_is_written_as_the_plain_one(make: type[nn.Module]) -> None:
    wrapped, own = make(), plain()
    assert list(plain_state(wrapped)) == list(own.state_dict()) != list(wrapped.state_dict())
    assert FlatModel(wrapped).fingerprint() == FlatModel(own).fingerprint()
    assert FlatModel(make()).rest.fingerprint() == FlatModel(plain()).rest.fingerprint()
    own.load_state_dict(plain_state(wrapped))


@pytest.mark.parametrize("make", WRAPPED)
def test_what_either_has_saved_loads_into_the_other(make: type[nn.Module]) -> None:
    wrapped, own = make(), plain()
    wrapped.load_state_dict(in_names_of(wrapped, own.state_dict()))
    own.load_state_dict(in_names_of(own, make().state_dict()))


def test_a_module_that_the_user_calls_so_keeps_its_name_in_files() -> None:
    model = nn.ModuleDict({"module": nn.Linear(2, 1)})
    assert list(plain_state(model)) == ["module.weight", "module.bias"]
    assert list(in_names_of(model, model.state_dict())) == ["module.weight", "module.bias"]
    assert compared("module.weight") == "weight"
