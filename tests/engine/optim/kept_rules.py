"""A rule whose state is kept and loaded into another goes on as the first does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from paceline.engine.optim.optimizers import make_rule
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.runtime.checkpointing.slice_capture import load_rule, state_of_rule


def assert_goes_on(recipe: OptimizerRecipe, length: int, part: slice, unused: tuple[int, int]) -> None:
    """The rule holds `part` of a model of `length` numbers. The second of six steps leaves the span `unused` alone."""
    gradients = [Flat.copy_of(torch.randn(length, generator=torch.Generator().manual_seed(k))) for k in range(6)]

    def steps(rule: Any, w: Flat, which: Iterable[int]) -> Flat:
        for k in which:  # pieces have made different numbers of steps after the second
            w = rule(w, gradients[k][part], 1, (unused,) if k == 1 else ())
        return w

    def made() -> Any:
        rule = make_rule(recipe)
        rule.start = part.start
        return rule

    first, again = made(), made()
    w = steps(first, Flat.copy_of(torch.ones(length))[part], range(3))
    numbers, vectors = state_of_rule(first, len(w))
    load_rule(again, numbers, {name: v.value() for name, v in vectors.items()})
    assert torch.equal(steps(again, w, range(3, 6)).value(), steps(first, w, range(3, 6)).value())
