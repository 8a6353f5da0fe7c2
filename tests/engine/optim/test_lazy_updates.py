"""Lazy updates: rows in the gradient are updated as torch does it, all others stay as they are."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.optim.optimizers import ServerOptimizer, make_rule
from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat

WHERE = Tables(3 + 8 * 2, (TableSpan(3, 8, 2),))
RECIPES = [
    OptimizerRecipe(name="sgd", lr=0.1),
    OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.01),
    OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9, nesterov=True),
    OptimizerRecipe(name="adam", lr=0.1, weight_decay=0.01),
    OptimizerRecipe(name="adamw", lr=0.1, weight_decay=0.01),
]


def lazy(recipe: OptimizerRecipe) -> ServerOptimizer:
    return make_rule(dataclasses.replace(recipe, lazy=True))


def numbers(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def gradient(rows: list[int], seed: int) -> SparseFlat:
    held = Rows(8, 2, torch.tensor(rows, dtype=torch.int64), Flat(numbers(2 * len(rows), seed)))
    return SparseFlat(WHERE, Flat(numbers(3, seed + 100)), (held,))


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_with_every_row_in_every_gradient_it_is_the_usual_optimizer(recipe: OptimizerRecipe) -> None:
    rule, usual = lazy(recipe), make_rule(recipe)
    w: Any = Flat(numbers(WHERE.length, 1))
    same: Any = Flat(w.value().clone())
    for n in range(5):
        g = gradient(list(range(8)), n)
        w, same = rule(w, g, 1), usual(same, Flat(g.value().clone()), 1)
        torch.testing.assert_close(w.value(), same.value(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_rows_that_are_not_in_a_gradient_stay_as_they_are(recipe: OptimizerRecipe) -> None:
    rule = lazy(recipe)
    w: Any = Flat(numbers(WHERE.length, 1))
    for n, rows in enumerate([[0, 3], [3, 7], [], [0]]):
        new: Any = rule(w, gradient(rows, n), 1)
        changed = (new.value() != w.value())[3:].view(8, 2).any(1).nonzero()[:, 0].tolist()
        assert changed == rows
        w = new


def test_what_is_in_no_table_feels_every_update() -> None:
    recipe = OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.1)
    rule, usual = lazy(recipe), make_rule(recipe)
    w: Any = Flat(numbers(WHERE.length, 1))
    dense: Any = Flat(w.value()[:3].clone())
    for n in range(4):
        g = gradient([n], n)
        w, dense = rule(w, g, 1), usual(dense, g.dense, 1)
    torch.testing.assert_close(w.value()[:3], dense.value())


def test_adam_is_torchs_sparse_adam_but_for_epsilon() -> None:
    table = nn.Parameter(numbers(16, 1).view(8, 2))
    reference = torch.optim.SparseAdam([table], lr=0.1, eps=1e-30)
    rule = lazy(OptimizerRecipe(name="adam", lr=0.1, eps=1e-30))
    w: Any = Flat(torch.cat([torch.zeros(3), table.detach().flatten()]))
    for n, rows in enumerate([[1, 2], [2, 5], [1], [6, 7]]):
        g = gradient(rows, n)
        held = g.tables[0]
        assert isinstance(held, Rows)
        table.grad = torch.sparse_coo_tensor(held.rows[None], held.matrix(), (8, 2), check_invariants=True)
        reference.step()
        w = rule(w, g, 1)
    torch.testing.assert_close(w.value()[3:].view(8, 2), table.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_it_goes_on_from_its_state(recipe: OptimizerRecipe) -> None:
    rule, other = lazy(recipe), lazy(recipe)
    w: Any = rule(Flat(numbers(WHERE.length, 1)), gradient([1, 4], 0), 3)
    other.load_state(rule.state())
    again: Any = Flat(w.value().clone())
    g = gradient([4, 5], 1)
    torch.testing.assert_close(rule(w, g, 1).value(), other(again, g, 1).value())


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_one_that_is_reset_remembers_neither_rows_nor_the_rest(recipe: OptimizerRecipe) -> None:
    rule, new = lazy(recipe), lazy(recipe)
    w: Any = rule(Flat(numbers(WHERE.length, 1)), gradient([1, 4], 0), 3)
    rule.reset()
    again: Any = Flat(w.value().clone())
    for n in range(2):
        g = gradient([4, 5], n + 1)
        w, again = rule(w, g, 1), new(again, g, 1)
    assert torch.equal(w.value(), again.value())


def test_a_dense_gradient_touches_the_rows_in_which_it_is_not_zero() -> None:
    rule = lazy(OptimizerRecipe(name="adam", lr=0.1))
    w: Any = rule(Flat(numbers(WHERE.length, 1)), gradient([1], 0), 1)
    new: Any = rule(w, Flat(gradient([2, 6], 1).value().clone()), 1)
    assert (new.value() != w.value())[3:].view(8, 2).any(1).nonzero()[:, 0].tolist() == [2, 6]


def test_a_model_without_tables_is_trained_as_usual() -> None:
    rule, usual = lazy(RECIPES[1]), make_rule(RECIPES[1])
    w: Any = Flat(numbers(5, 1))
    torch.testing.assert_close(rule(w, Flat(numbers(5, 2)), 1).value(), usual(w, Flat(numbers(5, 2)), 1).value())


def test_an_optimizer_that_needs_more_than_elements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.engine.optim.lazy_updates._MEMORY", {"sgd": ()})
    with pytest.raises(ConfigError, match="not for adam: leave lazy out"):
        lazy(OptimizerRecipe(name="adam"))
