"""SGD in groups is torch's, on short slices and on long ones, which are one compiled pass."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.engine.optim.grouped_sgd import GroupedSGD
from paceline.engine.optim.optimizers import check, make_rule
from paceline.engine.specs import GroupRecipe, OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.engine.vectors.norm_probe import LENGTH_MIN

GROUPS: list[dict[str, Any]] = [
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.02, "momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
    {"lr": 0.03},
    {"lr": 0.04, "weight_decay": 0.2},
]
UNUSED = 1
"""The step in which the middle of each group is left alone."""


def recipe_of(each: int, groups: list[dict[str, Any]]) -> OptimizerRecipe:
    own = (GroupRecipe(length=each, optimizer=OptimizerRecipe(**numbers)) for numbers in groups)
    return OptimizerRecipe(**groups[0], groups=tuple(own))


def pieces(v: Tensor, each: int) -> list[Tensor]:
    """Each group in three."""
    return [piece for group in v.split(each) for piece in group.split([each // 4, each // 2, each - 3 * (each // 4)])]


@pytest.mark.parametrize("each", [40, LENGTH_MIN // 4 + 4], ids=["short", "long"])
def test_it_is_torchs_in_each_group_and_leaves_alone_what_is_unused(each: int) -> None:
    length = 4 * each
    draw = torch.Generator().manual_seed(1)
    w = torch.randn(length, generator=draw)
    parameters = [nn.Parameter(piece.clone()) for piece in pieces(w, each)]
    groups: list[dict[str, Any]] = [{**of, "params": parameters[3 * i : 3 * i + 3]} for i, of in enumerate(GROUPS)]
    wanted = torch.optim.SGD(groups, lr=1.0)
    rule, flat = make_rule(recipe_of(each, GROUPS)), Flat.copy_of(w)
    middles = tuple((i * each + each // 4, i * each + each // 4 + each // 2) for i in range(4))
    for step in range(4):
        g = torch.randn(length, generator=draw)
        for i, (p, piece) in enumerate(zip(parameters, pieces(g, each), strict=True)):
            p.grad = None if step == UNUSED and i % 3 == 1 else piece.clone()
        if step == UNUSED:
            for start, stop in middles:
                g[start:stop] = 0
        if step == 2:  # a scheduler
            changed = [{**of, "lr": of["lr"] * 0.5} for of in GROUPS]
            rule.follow(recipe_of(each, changed))
            for group, of in zip(wanted.param_groups, changed, strict=True):
                group["lr"] = of["lr"]
        wanted.step()
        flat = rule(flat, Flat.copy_of(g * 2) * 0.5, 1, middles if step == UNUSED else ())
    torch.testing.assert_close(flat.value(), torch.cat([p.detach() for p in parameters]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("each", [40, LENGTH_MIN // 4 + 4], ids=["short", "long"])
def test_a_gradient_of_no_scale_is_zeros_whatever_it_holds(each: int) -> None:
    rule = make_rule(recipe_of(each, GROUPS))
    assert isinstance(rule, GroupedSGD)
    w = Flat.copy_of(torch.ones(4 * each))
    got = rule(w, Flat.copy_of(torch.full((4 * each,), torch.inf)) * 0.0, 1)
    assert torch.isfinite(got.value()).all()
    assert got.value()[0] == 1.0


def test_a_gradient_is_not_lengthened_by_a_norm_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.clip_norm = -1\.0: must be 0 or more"):
        check(dataclasses.replace(OptimizerRecipe(), clip_norm=-1.0))
