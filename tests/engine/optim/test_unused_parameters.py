"""What no forward pass has used is left alone, with all that is remembered of it, as torch's optimizers do."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest
import torch
from torch import Tensor, nn

from paceline.core.spans import Spans, common, merged
from paceline.engine.optim.lars_lamb import LAMB, LARS
from paceline.engine.optim.optimizers import ServerOptimizer, make_rule
from paceline.engine.optim.unused_parameters import ZeroTensors
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.runtime.checkpointing.slice_capture import load_rule, state_of_rule

LENGTHS = (7, 3, 12, 1, 5)
EDGES = (0, 7, 10, 22, 23, 28)
RECIPES = {
    "sgd": OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "decay": OptimizerRecipe(name="sgd", lr=0.1, weight_decay=0.1),
    "adam": OptimizerRecipe(name="adam", lr=0.1, weight_decay=0.1),
    "adamw": OptimizerRecipe(name="adamw", lr=0.1, weight_decay=0.1),
    "lars": OptimizerRecipe(name="lars", lr=0.5, momentum=0.9, weight_decay=0.1, trust=0.1),
    "lamb": OptimizerRecipe(name="lamb", lr=0.1, weight_decay=0.1),
}


def torch_optimizer(recipe: OptimizerRecipe, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    lr, decay, momentum = recipe.lr, recipe.weight_decay, recipe.momentum
    match recipe.name:
        case "sgd":
            return torch.optim.SGD(parameters, lr, momentum, weight_decay=decay, nesterov=recipe.nesterov)
        case "lars":
            return LARS(parameters, lr, momentum, decay, recipe.trust)
        case "lamb":
            return LAMB(parameters, lr, weight_decay=decay, eps=recipe.eps)
    kind = torch.optim.Adam if recipe.name == "adam" else torch.optim.AdamW
    return kind(parameters, lr, weight_decay=decay)


class PerTensor:
    """torch's own optimizer over the single tensors; those without a gradient have None."""

    def __init__(self, recipe: OptimizerRecipe, w: Tensor) -> None:
        self.parameters = [nn.Parameter(part.clone()) for part in w.split(LENGTHS)]
        self._optimizer = torch_optimizer(recipe, self.parameters)

    def step(self, g: Tensor, used: set[int]) -> Tensor:
        for i, (p, part) in enumerate(zip(self.parameters, g.split(LENGTHS), strict=True)):
            p.grad = part.clone() if i in used else None
        self._optimizer.step()
        return torch.cat([p.detach() for p in self.parameters])


def unused_by(used: set[int]) -> Spans:
    return merged((EDGES[i], EDGES[i + 1]) for i in range(len(LENGTHS)) if i not in used)


def draws(seed: int, steps: int) -> list[tuple[Tensor, set[int]]]:
    random, generator = Random(seed), torch.Generator().manual_seed(seed)
    found = []
    for _ in range(steps):
        used = {i for i in range(len(LENGTHS) - 1) if random.random() < 0.6}  # the last one never is
        g = torch.randn(EDGES[-1], generator=generator)
        for start, stop in unused_by(used):
            g[start:stop] = 0
        found.append((g, used))
    return found


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("seed", range(3))
def test_a_rule_is_torchs_optimizer_over_the_single_tensors(name: str, seed: int) -> None:
    w = torch.randn(EDGES[-1], generator=torch.Generator().manual_seed(99))
    rule, reference, flat = make_rule(RECIPES[name], tensors=LENGTHS), PerTensor(RECIPES[name], w), Flat.copy_of(w)
    for g, used in draws(seed, 12):
        before = flat.value().clone()
        flat = rule(flat, Flat.copy_of(g), 1, unused_by(used))
        torch.testing.assert_close(flat.value(), reference.step(g, used), rtol=1e-5, atol=1e-6)
        for start, stop in unused_by(used):
            assert torch.equal(flat.value()[start:stop], before[start:stop])


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_slices_that_cut_through_tensors_do_the_same(name: str) -> None:
    w = torch.randn(EDGES[-1], generator=torch.Generator().manual_seed(99))
    reference, parts = PerTensor(RECIPES[name], w), [slice(0, 5), slice(5, 15), slice(15, 28)]
    rules, flats = [make_rule(RECIPES[name]) for _ in parts], [Flat.copy_of(w[part]) for part in parts]
    for rule, part in zip(rules, parts, strict=True):
        rule.start = part.start
    for g, used in draws(5, 12):
        wanted = reference.step(g, used)
        for i, part in enumerate(parts):
            flats[i] = rules[i](flats[i], Flat.copy_of(g[part]), 1, unused_by(used))
            torch.testing.assert_close(flats[i].value(), wanted[part], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RECIPES)
def test_a_snapshot_of_it_goes_on_as_it_does(name: str) -> None:
    """By the way that takes a lost server's state to its successor."""
    rule, flat = make_rule(RECIPES[name], tensors=LENGTHS), Flat.copy_of(torch.ones(EDGES[-1]))
    steps = draws(2, 12)
    for g, used in steps[:6]:
        flat = rule(flat, Flat.copy_of(g), 1, unused_by(used))
    again: ServerOptimizer = make_rule(RECIPES[name], tensors=LENGTHS)
    numbers, vectors = state_of_rule(rule, len(flat))
    load_rule(again, numbers, {key: v.value() for key, v in vectors.items()})
    other = flat
    for g, used in steps[6:]:
        flat = rule(flat, Flat.copy_of(g), 1, unused_by(used))
        other = again(other, Flat.copy_of(g), 1, unused_by(used))
        assert torch.equal(flat.value(), other.value())


def test_a_rule_that_is_told_nothing_takes_zeros_throughout_for_unused() -> None:
    g, zeros = torch.ones(EDGES[-1]), ZeroTensors(LENGTHS)
    assert zeros.of(Flat(g, 0.5)) == ()
    assert zeros.of(Flat(g, 0.0)) == ((0, EDGES[-1]),)
    assert ZeroTensors([2, 0, 3, 0]).of(Flat(torch.tensor([1.0, 0, 0, 0, 0]))) == ((2, 5),)
    g[7:10] = g[22:28] = 0
    g[0] = 0  # one zero does not make a tensor unused
    assert zeros.of(Flat(g, 0.5)) == ((7, 10), (22, 28))
    rule = make_rule(RECIPES["sgd"])
    rule.zeros_unused = zeros
    w = Flat.copy_of(torch.ones(EDGES[-1]))
    moved = rule(w, Flat.copy_of(g), 1).value() != 1
    assert moved.tolist() == [not common(((i, i + 1),), ((7, 10), (22, 28))) for i in range(EDGES[-1])]


def test_lazy_rules_find_it_among_what_is_in_no_table() -> None:
    recipe = dataclasses.replace(RECIPES["adamw"], lazy=True)
    where = Tables(28, (TableSpan(7, 3, 5),))  # a table between two dense runs
    w = SparseFlat.weights(Flat.copy_of(torch.ones(28)), where)
    dense = torch.ones(28)
    dense[2:4] = dense[22:25] = 0
    g = SparseFlat.weights(Flat.copy_of(dense), where)
    new = make_rule(recipe)(w, g, 1, ((2, 4), (22, 25))).value()  # type: ignore[arg-type]
    assert [i for i in range(28) if new[i] == 1] == [2, 3, 22, 23, 24]


def test_what_a_codec_still_had_to_send_counts_though_nobody_uses_it_now() -> None:
    g = torch.zeros(EDGES[-1])
    g[8] = 1  # of an earlier gradient
    rule, w = make_rule(RECIPES["adamw"]), Flat.copy_of(torch.ones(EDGES[-1]))
    moved = (rule(w, Flat.copy_of(g), 1, ((7, 10), (22, 28))).value() != 1).tolist()
    assert moved == [True] * 22 + [False] * 6
