"""Runs any optimizer on a server: an import path names what makes it, of the whole tensors that the server holds.

    torch.optim:Adadelta     a class of torch's: it is given the parameter groups with their options
    package.module:function  it is given the named parameters, as `model.named_parameters()` does, and returns an
                             optimizer with the same parameter groups for any part of the model (empty ones, too)

Each slice of the model has an optimizer of its own, so one that looks at several tensors together needs one slice.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.spans import Spans, common
from paceline.engine.import_path import of_module
from paceline.engine.optim.optimizers import CONSTANT, ServerOptimizer
from paceline.engine.optim.packed_state import pack, pack_groups, unpack, unpack_groups
from paceline.engine.specs import OptimizerRecipe, PathRecipe, ScheduleRecipe
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

TORCH = "torch.optim"
HOW_IT_IS_COMPUTED = ("foreach", "fused", "capturable", "differentiable")
"""Options that change how the numbers are computed, not what they are."""


class PathRule(ServerOptimizer):
    """Applies the optimizer that a path leads to. `lr` is a factor on the learning rates of all groups.

    Raises ConfigError for a path that leads to no optimizer, and for lazy updates.
    """

    def __init__(self, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT) -> None:
        super().__init__(recipe, schedule)
        assert recipe.by_path is not None
        if recipe.lazy:
            raise ConfigError("lazy updates are for SGD, Adam and AdamW: leave lazy out")
        self.lr = 1.0
        self._by_path = recipe.by_path
        self._make = maker_of(recipe.by_path.path) if recipe.by_path.path else None
        self._optimizer: torch.optim.Optimizer | None = None
        self._parameters: list[nn.Parameter] = []
        self._edges: list[int] = []
        self._here: list[int] = []  # the numbers of the groups, in the order in which the optimizer has them
        self._kept: dict[str, Any] = {}  # the state to begin with

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        """Makes one step of the optimizer on a copy of `w`, whose tensors become the parameters'
        memory for the step.
        """
        fresh = spare(len(w), w.device)
        w.copy_into(fresh)
        gradient = g.value().to(w.device)
        if not self._by_path.path.startswith(f"{TORCH}:"):
            gradient = gradient.clone()  # one that is not torch's may write over it
        optimizer = self._optimizer or self._begin(fresh)
        # The parameters stay the same objects, by which the optimizer finds their state; only their memory changes.
        for p, (start, stop) in zip(self._parameters, itertools.pairwise(self._edges), strict=True):
            shape = p.shape
            p.grad = None
            p.data = fresh[start:stop].view(shape)
            p.grad = None if common(unused, ((start, stop),)) else gradient[start:stop].view(shape)
        for number, group in zip(self._here, optimizer.param_groups, strict=True):
            if "lr" in group:
                group["lr"] = self._by_path.groups[number]["lr"] * lr  # type: ignore[operator]
        optimizer.step()
        for p in self._parameters:
            p.grad = None
        return Flat(fresh)

    def follow(self, recipe: OptimizerRecipe) -> None:
        assert recipe.by_path is not None
        before, self.recipe, self._by_path = self._by_path, recipe, recipe.by_path
        self._set_options(before)

    def reset(self) -> None:
        self._optimizer, self._kept = None, {}

    def state(self) -> dict[str, Tensor | float | int]:
        if self._optimizer is None:
            return {**super().state(), **self._kept}
        own = [dict(self._optimizer.state.get(p, {})) for p in self._parameters]
        groups = pack_groups(self._optimizer.param_groups, [self._by_path.groups[number] for number in self._here])
        return {**super().state(), **pack(own, [p.numel() for p in self._parameters]), **groups}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        super().load_state(state)
        self._optimizer = None
        self._kept = {name: value for name, value in state.items() if name not in ("samples_seen", "lr")}

    # ---- making it ---------------------------------------------------------------------------------------
    def _begin(self, w: Tensor) -> torch.optim.Optimizer:
        """Makes the optimizer, now that the slice's length is known, and gives it the state that was loaded."""
        if self._make is None:
            raise ConfigError(f"{self._by_path.kind} makes steps on workers only: servers know no import path of it")
        tensors = tensors_from(self._by_path, self.start, len(w))
        self._edges = list(itertools.accumulate((math.prod(shape) for _, shape, _ in tensors), initial=0))
        if self._edges[-1] != len(w):
            raise ValueError(f"tensors of {self._edges[-1]} numbers in a slice of {len(w)}")
        # Some optimizers look at the parameters when they are made, so they are given the first weights.
        pieces = zip(itertools.pairwise(self._edges), tensors, strict=True)
        self._parameters = [nn.Parameter(w[start:stop].view(shape)) for (start, stop), (_, shape, _) in pieces]
        groups: dict[int, list[tuple[str, nn.Parameter]]] = {}
        for p, (name, _, number) in zip(self._parameters, tensors, strict=True):
            groups.setdefault(number, []).append((name, p))
        optimizer, self._here = self._make(self._by_path, groups)
        self._optimizer = optimizer
        self._set_options()
        # A state that was loaded could not be unpacked before the shapes of this slice were known.
        for p, own in zip(self._parameters, unpack(self._kept, self._parameters), strict=True):
            if own:
                optimizer.state[p] = own
        unpack_groups(self._kept, optimizer.param_groups)
        self._kept = {}
        return optimizer

    def _set_options(self, before: PathRecipe | None = None) -> None:
        """Gives each group of the optimizer the numbers of the recipe, where it has such names, and they are not those
        of the recipe `before`: an optimizer may keep counts among them."""
        if self._optimizer is not None:
            for number, group in zip(self._here, self._optimizer.param_groups, strict=True):
                old = before.groups[number] if before else {}
                new = self._by_path.groups[number]
                group.update({k: v for k, v in new.items() if k in group and (k not in old or old[k] != v)})


def tensors_from(recipe: PathRecipe, start: int, length: int) -> list[tuple[str, tuple[int, ...], int]]:
    """Returns name, shape and group of the tensors in the `length` numbers from `start` on, none of which is cut."""
    numbers = [number for number, count in enumerate(recipe.counts) for _ in range(count)]
    found, at = [], 0
    for name, shape, number in zip(recipe.names, recipe.shapes, numbers, strict=True):
        if start <= at < start + length:
            found.append((name, shape, number))
        at += math.prod(shape)
    return found


Groups = dict[int, list[tuple[str, nn.Parameter]]]
Maker = Callable[[PathRecipe, Groups], tuple[torch.optim.Optimizer, list[int]]]
"""Makes an optimizer of named parameters by group, and says which group is which."""


def maker_of(path: str) -> Maker:
    """Returns what makes an optimizer of `path`. Raises ConfigError where it leads to nothing of the kind."""
    target = imported(path)
    if path.partition(":")[0] == TORCH:
        return functools.partial(_of_class, target)
    return functools.partial(_of_function, path, target)


def imported(path: str) -> Any:
    """What `module:name` names. Raises ConfigError, with the way out."""
    hosts = "; have it on every host's path"
    return of_module(path, f"optimizer {path!r}", makes="optimizers", example="my_optimizers:make", hosts=hosts)


def path_of(function: Any) -> str:
    """Returns the import path of a function; "" for a function of the script itself, or within another function."""
    module, name = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", "")
    return f"{module}:{name}" if module != "__main__" and name.isidentifier() else ""


def _of_class(kind: Any, recipe: PathRecipe, groups: Groups) -> tuple[torch.optim.Optimizer, list[int]]:
    """Returns an optimizer of a class, and the numbers of the groups that this server has."""
    each = [{**recipe.groups[number], "params": [p for _, p in named]} for number, named in groups.items()]
    return kind(each, **recipe.groups[0]), list(groups)


def _of_function(
    path: str, function: Any, recipe: PathRecipe, groups: Groups
) -> tuple[torch.optim.Optimizer, list[int]]:
    """Returns the optimizer that a function makes of this server's tensors, and the numbers of its groups.

    Raises ConfigError where it makes fewer groups of these tensors than of the whole model.
    """
    named = [pair for of in groups.values() for pair in of]
    optimizer = made_by(path, function, named)
    if len(optimizer.param_groups) != len(recipe.groups):
        raise ConfigError(
            f"optimizer {path!r} makes {len(optimizer.param_groups)} parameter groups of a server's tensors, and "
            f"{len(recipe.groups)} of the whole model: let it make the same ones of any tensors, empty ones too"
        )
    return optimizer, list(range(len(recipe.groups)))


def made_by(path: str, function: Any, named: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Returns the optimizer that a function makes of named parameters. Raises ConfigError where it makes none."""
    optimizer = function(named)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(f"optimizer {path!r} made a {type(optimizer).__name__}, not a torch.optim.Optimizer")
    return optimizer


def options_of(kind: type, group: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of class `kind` that a parameter group keeps."""
    known = inspect.signature(kind).parameters
    return {name: value for name, value in group.items() if name in known and name != "params"}
