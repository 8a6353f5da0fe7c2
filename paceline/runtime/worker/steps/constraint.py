"""Limits the weights after each step, by a function of the user's: weight clipping, max-norm.

It gets the whole model, so it runs where the user's own optimizer makes the steps: on workers. Servers have slices, and
optimizers of their own: bsp has the workers make its steps then, and others refuse it. A mean of workers' weights, and
the outer step of a local scheme, are made without it, so it runs once more on the final model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.optim.own_optimizer import OwnOptimizer
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.who_updates import servers_update
from paceline.runtime.worker.steps.local_work import LocalWork

Constraint = Callable[[nn.Module], object]
"""Changes the parameters of a model in place."""


def limit(constraint: Constraint, module: nn.Module) -> None:
    """Limits the weights of `module`."""
    with torch.no_grad():
        constraint(module)


def limit_steps(
    constraint: Constraint, module: nn.Module, work: LocalWork, update: object, recipe: Recipe, servers: int
) -> None:
    """Has `constraint` called after each step of the user's optimizer. `update`: what makes updates on this worker.

    Raises ConfigError where that optimizer makes no steps.
    """
    steps, scheme = work.steps_of_user, recipe.make_scheme()
    by_worker = scheme.trains_locally or isinstance(update, OwnOptimizer)
    if steps is None or servers_update(scheme, servers) or not by_worker:
        raise ConfigError(
            f"constraint: under {recipe.scheme} with {servers} server{'s' * (servers != 1)} the steps are not made by "
            "your optimizer on the workers, where it would be called: take bsp, or a scheme of local steps such as "
            "esync or localsgd"
        )
    steps.limit = functools.partial(limit, constraint, module)
