"""Several models in one loop, each with an optimizer of its own, as one model and one optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import nn

from paceline.core.errors import ConfigError


class SeveralOptimizers(torch.optim.Optimizer):
    """The optimizers of several models by name; its groups are theirs, one model's after the other's.

    `step` makes a step of each that has a gradient.
    """

    def __init__(self, members: Mapping[str, torch.optim.Optimizer]) -> None:
        # Not torch's own: the groups and the state belong to the members.
        self.members = dict(members)
        self._state = _States(self.members)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Returns the groups of all members, in their order."""
        return [group for optimizer in self.members.values() for group in optimizer.param_groups]

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Returns the state of each parameter, of whichever member."""
        return self._state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Makes the steps."""
        for optimizer in self.members.values():
            if any(p.grad is not None for p in parameters_of(optimizer)):
                optimizer.step()

    def register_step_pre_hook(self, hook: Any) -> Any:
        """Registers a hook that is called before each step of each member."""
        return _Handles([optimizer.register_step_pre_hook(hook) for optimizer in self.members.values()])

    def __repr__(self) -> str:
        return ", ".join(f"{name}: {optimizer!r}" for name, optimizer in self.members.items())


class SeveralOfOneModel(SeveralOptimizers):
    """The optimizers of one model, each of some parameters: matrices by one rule, the rest by another. Every step is
    one of all.
    """


class _States(MutableMapping[Any, Any]):
    """Maps each parameter to its state, in whichever optimizer that is."""

    def __init__(self, members: Mapping[str, torch.optim.Optimizer]) -> None:
        self._members = list(members.values())

    def _of(self, key: Any) -> Any:
        found = (o.state for o in self._members if key in o.state)
        holds = (o.state for o in self._members if isinstance(key, nn.Parameter) and key in set(parameters_of(o)))
        return next(found, None) or next(holds, self._members[0].state)

    def __getitem__(self, key: Any) -> Any:
        return self._of(key)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._of(key)[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._of(key)[key]

    def __contains__(self, key: Any) -> bool:  # not by __getitem__, which makes what is missing
        return any(key in optimizer.state for optimizer in self._members)

    def __iter__(self) -> Iterator[Any]:
        return iter([key for optimizer in self._members for key in optimizer.state])

    def __len__(self) -> int:
        return sum(len(optimizer.state) for optimizer in self._members)


class _Handles:
    """Bundles the handles of one hook at several optimizers."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Removes the hook everywhere."""
        for handle in self._handles:
            handle.remove()


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    """Yields all parameters that an optimizer holds."""
    for group in optimizer.param_groups:
        yield from group["params"]


def class_of(optimizer: torch.optim.Optimizer) -> type[torch.optim.Optimizer]:
    """Its class; of several optimizers the one that all have, or `SeveralOptimizers`."""
    if not isinstance(optimizer, SeveralOptimizers):
        return type(optimizer)
    classes = {type(member) for member in optimizer.members.values()}
    return classes.pop() if len(classes) == 1 else SeveralOptimizers


def together(
    models: Mapping[str, nn.Module], optimizers: Mapping[str, torch.optim.Optimizer]
) -> tuple[nn.Module, SeveralOptimizers]:
    """Returns one module with all models in it, by name, and one optimizer.

    Raises ConfigError where the names differ, or two optimizers hold the same parameter.
    """
    if not models or models.keys() != optimizers.keys():
        raise ConfigError(
            f"models {_names(models)} and optimizers {_names(optimizers)}: give one optimizer for each model, by the "
            "same names"
        )
    for name, optimizer in optimizers.items():
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError(f"the optimizer of {name} is {optimizer!r}: give an optimizer itself")
    owners: dict[nn.Parameter, str] = {}
    for name, optimizer in optimizers.items():
        own = set(models[name].parameters())
        for p in parameters_of(optimizer):
            if p not in own:
                raise ConfigError(f"the optimizer of {name} holds a parameter that is not in that model")
            if owners.setdefault(p, name) != name:
                raise ConfigError(
                    f"a parameter is in the optimizers of {owners[p]} and {name}: give it to one, and take pace.step() "
                    "without a name where both are trained"
                )
    try:
        module = nn.ModuleDict(dict(models))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"models {_names(models)}: {error.args[0]}; give them other names") from None
    return module, SeveralOptimizers({name: optimizers[name] for name in models})


def of_one_model(optimizers: Mapping[str, torch.optim.Optimizer]) -> SeveralOfOneModel:
    """Returns several optimizers of one model as one. Raises ConfigError where two hold the same parameter."""
    owners: dict[nn.Parameter, str] = {}
    for name, optimizer in optimizers.items():
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError(f"optimizer {name} of the model is {optimizer!r}: give optimizers themselves")
        for p in parameters_of(optimizer):
            if owners.setdefault(p, name) != name:
                raise ConfigError(
                    f"a parameter is in the optimizers {owners[p]} and {name} of the model: give it to one"
                )
    if not owners:
        raise ConfigError("no optimizer of the model holds a parameter")
    return SeveralOfOneModel(optimizers)


def _names(named: Mapping[str, Any]) -> str:
    """Returns names as an error shows them: `{'D', 'G'}`."""
    return "{" + ", ".join(map(repr, named)) + "}"
