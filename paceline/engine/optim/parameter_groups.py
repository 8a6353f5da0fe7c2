"""Handles parameter groups on a server: one of torch's optimizers, several groups of numbers, one vector.

The model's vector has the parameters of the first group first, then those of the second, and so on
(`paceline.engine.model.trainable`). So a slice of it has at most one run of numbers of each group, and a group costs a
call of the optimizer's kernel, however many tensors are in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.spans import Spans
from paceline.engine.optim.optimizers import CONSTANT, ServerOptimizer, set_numbers, torch_optimizer
from paceline.engine.optim.unused_parameters import Pieces
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

NO_LAZY = "lazy updates are for optimizers with one parameter group: leave lazy out"


class GroupedRule(ServerOptimizer):
    """Applies a recipe with groups. `lr` is a factor on the learning rates of all groups.

    tensors: lengths of the tensors in the slice, for LARS and LAMB. Raises ConfigError for lazy updates.
    """

    def __init__(
        self, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT, tensors: Sequence[int] = ()
    ) -> None:
        super().__init__(recipe, schedule)
        if recipe.lazy:
            raise ConfigError(NO_LAZY)
        self.lr = 1.0
        self._tensors = tensors
        self._here: list[int] = []  # the numbers of the groups that have a part in this slice
        self._pieces: Pieces | None = None

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        fresh = spare(len(w), w.device)
        w.copy_into(fresh)
        pieces = self._pieces or self._make(len(w))
        rates = [self.recipe.groups[number].optimizer.lr * lr for number in self._here]
        pieces.step(fresh, g.value().to(w.device), rates, unused)
        return Flat(fresh)

    def follow(self, recipe: OptimizerRecipe) -> None:
        self.recipe = recipe
        if self._pieces is not None:
            for number, group in zip(self._here, self._pieces.numbers, strict=True):
                set_numbers(group, recipe.groups[number].optimizer)

    def reset(self) -> None:
        if self._pieces is not None:
            self._pieces.reset()

    def state(self) -> dict[str, Tensor | float | int]:
        return {**super().state(), **(self._pieces.state() if self._pieces is not None else {})}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        """Goes on where `state()` was taken.

        The slice's length is read off the vectors, as no weights have come yet.
        """
        super().load_state(state)
        kept = {name: value for name, value in state.items() if name not in ("samples_seen", "lr")}
        length = max((v.numel() for v in kept.values() if isinstance(v, Tensor)), default=0)
        if length:
            self._make(length).load_state(kept)

    def _make(self, length: int) -> Pieces:
        """Makes the optimizer once the length of the slice is known, with one parameter a group that
        has numbers here.
        """
        parts = parts_of([group.length for group in self.recipe.groups], self.start, length)
        self._here = list(parts)
        tensors = dict(zip(parts, _tensors_of(self._tensors, list(parts.values())), strict=True))

        def made(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
            each = [
                torch_optimizer(self.recipe.groups[number].optimizer, p, tensors[number])
                for number, p in zip(parts, parameters, strict=True)
            ]
            # One optimizer with all groups, made by moving those of the others into the first: torch has no other way
            # to give each group the numbers of a recipe.
            for other in each[1:]:
                each[0].add_param_group(other.param_groups[0])
            return each[0]

        self._pieces = Pieces(made, self._tensors, groups=list(parts.values()))
        return self._pieces


def parts_of(lengths: Sequence[int], start: int, length: int) -> dict[int, int]:
    """Returns how many of the `length` numbers from `start` on each group has, by its number; groups with none are left
    out.

    Raises ValueError if the groups together do not have all of them.
    """
    edges = itertools.pairwise(itertools.accumulate(lengths, initial=0))
    found = {
        number: min(end, start + length) - max(begin, start)
        for number, (begin, end) in enumerate(edges)
        if max(begin, start) < min(end, start + length)
    }
    if sum(found.values()) != length:
        raise ValueError(f"parameter groups of {sum(lengths)} numbers have not those from {start} to {start + length}")
    return found


def _tensors_of(tensors: Sequence[int], parts: Sequence[int]) -> list[list[int]]:
    """Returns the lengths of the tensors in each part, none of which cuts one; empty lists where none are given."""
    found: list[list[int]] = [[] for _ in parts]
    edges = list(itertools.accumulate(parts))
    for end, length in zip(itertools.accumulate(tensors), tensors, strict=True):
        found[next(i for i, edge in enumerate(edges) if end <= edge)].append(length)
    return found
