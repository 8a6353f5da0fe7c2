"""The contract of a ModelClass: what is missing is named, and what is shared is what `params` names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from paceline.compat.theanompi.contract import check_model, compile_functions, model_class, module_of
from paceline.compat.theanompi.torch_model import TorchModel
from paceline.core.errors import ConfigError

CONFIG = {"rank": 0, "size": 1, "verbose": False}


def test_theano_mpis_own_names_find_the_models_here() -> None:
    made = model_class("theanompi.models.alex_net", "AlexNet")
    assert issubclass(made, TorchModel)
    assert (made.n_epochs, made.batch_size, made.lr_step) == (70, 128, (20, 40, 60))
    with pytest.raises(ConfigError, match="MODELCLASS=AlexNett: .* did you mean 'AlexNet'"):
        model_class("theanompi.models.alex_net", "AlexNett")
    assert model_class("paceline.compat.theanompi.torch_model", "TorchModel") is TorchModel


def test_what_a_model_lacks_is_listed_in_one_line() -> None:
    model = SimpleNamespace(params=[], data=None, epoch=0, train_iter=lambda count, recorder: None)
    with pytest.raises(ConfigError, match=r"no optimizer, n_epochs, compile_iter_fns\(\), val_iter\(\), reset_iter"):
        check_model(model)


def test_a_whole_model_passes_and_its_data_is_looked_at() -> None:
    model = TorchModel(CONFIG)
    check_model(model)
    model.data = SimpleNamespace(n_batch_train=1)
    with pytest.raises(ConfigError, match=r"TorchModel.data has no n_batch_val"):
        check_model(model)


def test_a_part_of_a_model_is_shared_by_naming_only_that_part() -> None:
    model: Any = TorchModel(CONFIG)
    assert module_of(model) is model.module  # all of it, with buffers
    model.params = list(model.module.parameters())[:2]
    shared = module_of(model)
    assert [id(p) for p in shared.parameters()] == [id(p) for p in model.params]
    model.params = [torch.zeros(3)]
    with pytest.raises(ConfigError, match=r"must be a list of torch.nn.Parameter"):
        module_of(model)


def test_compile_iter_fns_is_called_with_the_sync_type_if_it_takes_one() -> None:
    said: list[str] = []
    compile_functions(SimpleNamespace(compile_iter_fns=lambda sync_type: said.append(sync_type)), "cdd")
    compile_functions(SimpleNamespace(compile_iter_fns=lambda: said.append("none")), "cdd")
    assert said == ["cdd", "none"]


def test_parameters_that_are_no_module_are_the_users_own() -> None:
    own = nn.Parameter(torch.ones(2))
    shared = module_of(SimpleNamespace(params=[own]))
    assert next(shared.parameters()) is own
