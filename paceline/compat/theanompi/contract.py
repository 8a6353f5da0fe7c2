"""Theano-MPI's contract of a ModelClass, for networks of torch: what it needs, and what is made of it.

A model is made as `ModelClass(config)`; config has `verbose`, `rank`, `size`, and the settings of the command. It has:

    params                        parameters of torch that the workers share; others stay this worker's own
    optimizer                     an optimizer of torch over `params`
    data                          `n_batch_train`, `n_batch_val`
    epoch, n_epochs, n_subb       where it is, how far it goes, mini-batches in each batch of the data (1)
    compile_iter_fns(sync_type)   called once before training
    train_iter(count, recorder)   forward and backward of one mini-batch; the rule makes the step behind it, unless
                                  `optimizer.step()` has made it
    val_iter(count, recorder)     one batch of validation; "stop" ends the run
    reset_iter(mode)              begins `train` or `val` anew
    adjust_hyperp(epoch)          after each epoch
    cleanup()                     at the end

Of these Theano-MPI has `params` as variables of Theano and no `optimizer`: its functions are compiled with the update
in them.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from paceline.compat.theanompi.models import class_named
from paceline.core.errors import ConfigError
from paceline.engine import import_path

ATTRIBUTES = ("params", "optimizer", "data", "epoch", "n_epochs")
METHODS = ("compile_iter_fns", "train_iter", "val_iter", "reset_iter", "adjust_hyperp", "cleanup")
ORIGINAL = "theanompi.models"


class SharedParameters(nn.Module):
    """Holds parameters that are no module of their own."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        super().__init__()
        for number, parameter in enumerate(params):
            self.register_parameter(f"p{number}", parameter)


def model_class(modelfile: str, modelclass: str) -> Any:
    """Returns the class: of the user's module or file, or ours for one of Theano-MPI's own models.

    Raises ConfigError.
    """
    if modelfile == ORIGINAL or modelfile.startswith(f"{ORIGINAL}."):
        return class_named(modelclass)
    return import_path.own(f"{modelfile}:{modelclass}", "MODELFILE", makes="models")


def check_model(model: Any) -> None:
    """Raises ConfigError, in one line, for a model that lacks a part of the contract."""
    missing = [name for name in ATTRIBUTES if not hasattr(model, name)]
    missing += [f"{name}()" for name in METHODS if not callable(getattr(model, name, None))]
    name = type(model).__name__
    if missing:
        raise ConfigError(f"{name} has no {', '.join(missing)}: docs/migration-theano-mpi.md lists what a model has")
    for attribute in ("n_batch_train", "n_batch_val"):
        if not hasattr(model.data, attribute):
            raise ConfigError(f"{name}.data has no {attribute}")
    if not isinstance(model.optimizer, torch.optim.Optimizer):
        raise ConfigError(f"{name}.optimizer is {import_path.kind_of(model.optimizer)}: give one of torch.optim")


def module_of(model: Any) -> nn.Module:
    """Returns the module whose parameters the workers share: `model.module`, or one made of `params`.

    A part of a model is shared by naming only that part in `params`, such as a GAN's critic. Raises ConfigError.
    """
    params = list(model.params)
    if not params or not all(isinstance(parameter, nn.Parameter) for parameter in params):
        raise ConfigError(f"{type(model).__name__}.params: must be a list of torch.nn.Parameter, and not empty")
    module = getattr(model, "module", None)
    if isinstance(module, nn.Module):
        trained = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
        if trained == {id(parameter) for parameter in params}:
            return module  # with its buffers
    return SharedParameters(params)


def compile_functions(model: Any, sync_type: str) -> None:
    """Calls `compile_iter_fns`, which some models declare without `sync_type`."""
    if inspect.signature(model.compile_iter_fns).parameters:
        model.compile_iter_fns(sync_type=sync_type)
    else:
        model.compile_iter_fns()
