"""Parameter groups on a server: one of torch's optimizers, several groups of numbers, one vector.

The model's vector has the parameters of the first group first, then those of the second, and so on
(`paceline.engine.model.trainable`). So a slice of it has at most one run of numbers of each group, and a group costs a
call of the optimizer's kernel, however many tensors are in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.spans import Spans, within
from paceline.engine.optim.optimizers import CONSTANT, ServerOptimizer, set_numbers, torch_optimizer
from paceline.engine.optim.unused_parameters import Pieces
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat
from paceline.engine.vectors.norm_probe import LENGTH_MIN

NO_LAZY = "lazy updates are for optimizers with one parameter group: leave lazy out"


class GroupedRule(ServerOptimizer):
    """The rule of a recipe with groups. `lr` is a factor on the learning rates of all groups.

    tensors: lengths of those in the slice, for LARS and LAMB. Raises ConfigError for lazy updates.
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
        super().load_state(state)
        kept = {name: value for name, value in state.items() if name not in ("samples_seen", "lr")}
        length = max((v.numel() for v in kept.values() if isinstance(v, Tensor)), default=0)
        if length:
            self._make(length).load_state(kept)

    def _make(self, length: int) -> Pieces:
        parts = parts_of([group.length for group in self.recipe.groups], self.start, length)
        self._here = list(parts)
        tensors = dict(zip(parts, _tensors_of(self._tensors, list(parts.values())), strict=True))

        def made(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
            each = [
                torch_optimizer(self.recipe.groups[number].optimizer, p, tensors[number])
                for number, p in zip(parts, parameters, strict=True)
            ]
            for other in each[1:]:
                each[0].add_param_group(other.param_groups[0])
            return each[0]

        self._pieces = Pieces(made, self._tensors, groups=list(parts.values()))
        return self._pieces


class GroupedSGD(ServerOptimizer):
    """The same for SGD in one pass over memory, or on small slices with few calls. v is zero before the first step.

    d = g + lambda w;  v <- mu v + d;  w - lr v, or with Nesterov w - lr (d + mu v), each by the numbers of its group
    """

    def __init__(self, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT) -> None:
        super().__init__(recipe, schedule)
        if recipe.lazy:
            raise ConfigError(NO_LAZY)
        self.lr = 1.0
        self._v: Tensor | None = None

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        out, x = spare(len(w), w.device), w.value()
        y = g.tensor.to(w.device) if g.scale else torch.zeros_like(x)
        if self._v is None and self.recipe.momentum_max:
            self._v = torch.zeros_like(x)
        loop = _loop(x)
        at = 0
        for number, length in parts_of([group.length for group in self.recipe.groups], self.start, len(w)).items():
            own = self.recipe.groups[number].optimizer
            for start, stop in _others(unused, at, at + length):
                v = self._v[start:stop] if self._v is not None and own.momentum else None
                step = _Step(x[start:stop], y[start:stop], g.scale, v, out[start:stop])
                (loop or _in_calls)(own, own.lr * lr, step)
            at += length
        for start, stop in unused:
            out[start:stop] = x[start:stop]
        return Flat(out)

    def follow(self, recipe: OptimizerRecipe) -> None:
        self.recipe = recipe

    def reset(self) -> None:
        self._v = None

    def state(self) -> dict[str, Tensor | float | int]:
        return super().state() if self._v is None else {**super().state(), "momentum": self._v.clone()}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        super().load_state(state)
        momentum = state.get("momentum")
        self._v = momentum.clone() if isinstance(momentum, Tensor) else None


@dataclass(frozen=True, slots=True)
class _Step:
    """Of a run of numbers: weights, the gradient and its factor, the momentum if there is one, room for the result."""

    w: Tensor
    g: Tensor
    scale: float
    v: Tensor | None
    out: Tensor


def _in_calls(own: OptimizerRecipe, lr: float, step: _Step) -> None:
    d = step.g if step.scale == 1.0 else step.g * step.scale
    if own.weight_decay:
        d = torch.add(d, step.w, alpha=own.weight_decay)
    if step.v is not None:
        step.v.mul_(own.momentum).add_(d)
        d = torch.add(d, step.v, alpha=own.momentum) if own.nesterov else step.v
    torch.sub(step.w, d, alpha=lr, out=step.out)


def _loop(w: Tensor) -> Callable[[OptimizerRecipe, float, _Step], None] | None:
    """The same in one pass, where that is worth the time that numba takes to be there."""
    if len(w) < LENGTH_MIN or w.device.type != "cpu" or torch.get_num_threads() > 1:
        return None
    from paceline.engine.vectors.fused_passes import sgd_step

    def in_one_pass(own: OptimizerRecipe, lr: float, step: _Step) -> None:
        if step.v is None:
            _in_calls(own, lr, step)
            return
        ahead = own.momentum if own.nesterov else 0.0
        w, g, v, out = step.w.numpy(), step.g.numpy(), step.v.numpy(), step.out.numpy()
        sgd_step(w, g, step.scale, own.weight_decay, own.momentum, ahead, lr, v, out)

    return in_one_pass


def _others(unused: Spans, start: int, stop: int) -> Spans:
    """What of `start` to `stop` is not unused."""
    edges = [start, *itertools.chain(*within(unused, start, stop, start)), stop]
    return tuple((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b)


def parts_of(lengths: Sequence[int], start: int, length: int) -> dict[int, int]:
    """Of `length` numbers from `start` on: how many each group has, by its number; those that have none left out."""
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
    """The lengths of the tensors in each part, none of which cuts one; nothing where none are given."""
    found: list[list[int]] = [[] for _ in parts]
    edges = list(itertools.accumulate(parts))
    for end, length in zip(itertools.accumulate(tensors), tensors, strict=True):
        found[next(i for i, edge in enumerate(edges) if end <= edge)].append(length)
    return found
