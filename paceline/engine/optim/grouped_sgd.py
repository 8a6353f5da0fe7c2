"""Applies SGD in parameter groups, on a server.

    d = g + lambda w;  v <- mu v + d;  w - lr v, or with Nesterov w - lr (d + mu v), each by the numbers of its group

A slice of 65,536 numbers or more is one pass over memory, by a compiled loop. A shorter one is a few calls of torch
whatever the number of groups: there calls cost more than numbers, so each number of the groups becomes a vector as long
as the slice.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.core.spans import Spans, within
from paceline.engine.optim.optimizers import CONSTANT, ServerOptimizer
from paceline.engine.optim.parameter_groups import NO_LAZY, parts_of
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat
from paceline.engine.vectors.norm_probe import LENGTH_MIN


class GroupedSGD(ServerOptimizer):
    """The rule is SGD with numbers by group.

    `lr` is a factor on the learning rates of all groups. v is zero before the first step.
    """

    def __init__(self, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT) -> None:
        super().__init__(recipe, schedule)
        if recipe.lazy:
            raise ConfigError(NO_LAZY)
        self.lr = 1.0
        self._v: Tensor | None = None
        self._numbers: _GroupNumbers | None = None
        self._table: Any = None

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        """Makes one step, by the compiled loop for long slices on the host, else by calls of torch."""
        out, x = spare(len(w), w.device), w.value()
        if self._v is None and self.recipe.momentum_max:
            self._v = torch.zeros_like(x)
        short = len(w) < LENGTH_MIN or w.device.type != "cpu"
        (self._in_few_calls if short else self._in_one_pass)(x, g, lr, unused, out)
        for start, stop in unused:
            out[start:stop] = x[start:stop]
        return Flat(out)

    def follow(self, recipe: OptimizerRecipe) -> None:
        self.recipe, self._numbers, self._table = recipe, None, None

    def reset(self) -> None:
        self._v = None

    def state(self) -> dict[str, Tensor | float | int]:
        return super().state() if self._v is None else {**super().state(), "momentum": self._v.clone()}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        super().load_state(state)
        momentum = state.get("momentum")
        self._v = momentum.clone() if isinstance(momentum, Tensor) else None

    def _parts(self, length: int) -> dict[int, int]:
        """Returns how many numbers of this slice each group has, by the group's number."""
        return parts_of([group.length for group in self.recipe.groups], self.start, length)

    def _in_few_calls(self, w: Tensor, g: Flat, lr: float, unused: Spans, out: Tensor) -> None:
        """Makes the step with vectors of numbers; see the file's head. It must restore what is unused, which it
        overwrites.
        """
        numbers = self._numbers = self._numbers or _GroupNumbers(self.recipe, self._parts(len(w)), w)
        d, v = g.value().to(w.device), self._v
        if numbers.decay is not None:
            d = torch.addcmul(d, w, numbers.decay)
        if v is not None:
            kept = [v[start:stop].clone() for start, stop in unused]
            v.mul_(numbers.momentum).add_(d)
            # Groups without momentum have v = d here; it is zeroed after this step, as they remember nothing.
            d = v.clone() if numbers.ahead is None else torch.mul(v, numbers.of_v).addcmul_(d, numbers.ahead)
            if numbers.has_momentum is not None:
                v.mul_(numbers.has_momentum)
            for (start, stop), before in zip(unused, kept, strict=True):
                v[start:stop] = before
        torch.addcmul(w, d, numbers.lr, value=-lr, out=out)

    def _in_one_pass(self, w: Tensor, g: Flat, lr: float, unused: Spans, out: Tensor) -> None:
        """Makes the step by the compiled loop, over the runs of each group that are not unused."""
        from paceline.engine.vectors.fused_passes import sgd_step  # numba takes its time to be there

        ends, runs = list(itertools.accumulate(self._parts(len(w)).values(), initial=0)), []
        for number, (start, stop) in zip(self._parts(len(w)), itertools.pairwise(ends), strict=True):
            runs += [(number, *run) for run in _others(unused, start, stop)]
        if self._table is None:
            rows = [group.optimizer for group in self.recipe.groups]
            table = [(of.lr, of.weight_decay, of.momentum, *_shares(of)) for of in rows]
            self._table = np.array(table, np.float32)
        y = g.tensor if g.scale else torch.zeros_like(w)
        v = self._v if self._v is not None else out
        sgd_step(
            w.numpy(),
            y.numpy(),
            g.scale,
            np.array(runs, np.int64).reshape(-1, 3),
            self._table,
            lr,
            v.numpy(),
            out.numpy(),
        )


class _GroupNumbers:
    """Holds the numbers of the groups, each as a vector as long as the slice; None where they would change nothing.

    With v for mu v + d, the step is of_v v + ahead d (`_shares`).
    """

    def __init__(self, recipe: OptimizerRecipe, parts: dict[int, int], like: Tensor) -> None:
        own = [recipe.groups[number].optimizer for number in parts]
        lengths = torch.tensor(list(parts.values()))

        def whole(numbers: list[float]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.float32).repeat_interleave(lengths).to(like.device)

        # The vectors below are None where they would change nothing in any group: each saves a call in every step.
        self.lr = whole([of.lr for of in own])
        self.decay = whole([of.weight_decay for of in own]) if any(of.weight_decay for of in own) else None
        self.momentum = whole([of.momentum for of in own])
        nesterov = any(of.nesterov for of in own)
        shares = [_shares(of) for of in own]
        self.ahead = whole([of_d for of_d, _ in shares]) if nesterov else None
        self.of_v = whole([of_v for _, of_v in shares])
        self.has_momentum = None if all(of.momentum for of in own) else whole([float(of.momentum > 0) for of in own])


def _shares(own: OptimizerRecipe) -> tuple[float, float]:
    """Returns how much of d and of the new v a step is made of."""
    return (1.0, own.momentum) if own.nesterov else (0.0, 1.0)


def _others(unused: Spans, start: int, stop: int) -> Spans:
    """Returns the spans of `start` to `stop` that are not unused."""
    edges = [start, *itertools.chain(*within(unused, start, stop, start)), stop]
    return tuple((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b)
