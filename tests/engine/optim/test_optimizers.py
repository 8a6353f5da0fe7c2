"""Every optimizer here is torch's own, seen from a server or a worker."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.core.sharding import lay_out
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.optim.lr_schedule import factor
from paceline.engine.optim.optimizers import SGD, LocalOptimizer, TorchRule, make_rule
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.engine.vectors.flat import Flat
from tests.engine.optim.recipes import RECIPES, network, torch_optimizer

SCHEDULE = ScheduleRecipe(name="cosine", warmup=40, total=160, floor=0.1)


BATCH = 8


def backward(module: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    module(torch.randn(BATCH, 6, generator=generator)).square().mean().backward()


def trained_by_torch(recipe: OptimizerRecipe, schedule: ScheduleRecipe, steps: int) -> torch.Tensor:
    module = network()
    optimizer = torch_optimizer(module, recipe)
    for step in range(steps):
        optimizer.zero_grad()
        backward(module, step)
        optimizer.param_groups[0]["lr"] = recipe.lr * factor(schedule, step * BATCH)
        if recipe.clip_norm:
            torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.clip_norm)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def gradients(model: FlatModel, w: Flat, step: int) -> Flat:
    model.load(w)
    model.zero_grad()
    backward(model.module, step)
    return model.gradient()


@pytest.mark.parametrize("schedule", [ScheduleRecipe(), SCHEDULE], ids=["constant", "cosine"])
@pytest.mark.parametrize("shards", [1, 3])
def test_twenty_updates_by_values_equal_torch_on_the_plain_module(
    recipe: OptimizerRecipe, schedule: ScheduleRecipe, shards: int
) -> None:
    model = FlatModel(network())
    w = model.weights()
    if recipe.needs_model:
        shards = 1
    parts = lay_out(len(w), shards, tensors=model.tensors if recipe.needs_tensors else ()).slices
    tensors = {part.start: model.tensors if shards == 1 else [] for part in parts}
    if shards > 1:
        for length, end in zip(model.tensors, itertools.accumulate(model.tensors), strict=True):
            tensors[max(start for start in tensors if start <= end - length)].append(length)
    rules = [make_rule(recipe, schedule, tensors[part.start]) for part in parts]
    for step in range(20):
        g = gradients(model, w, step) * 4.0 * 0.25
        updated = [rule(w[part], g[part], BATCH) for rule, part in zip(rules, parts, strict=True)]
        w = Flat.copy_of(torch.cat([v.value() for v in updated]))
    torch.testing.assert_close(w.value(), trained_by_torch(recipe, schedule, 20), rtol=1e-5, atol=1e-6)
    assert rules[0].samples_seen == 20 * BATCH


@pytest.mark.parametrize("schedule", [ScheduleRecipe(), SCHEDULE], ids=["constant", "cosine"])
def test_twenty_local_steps_equal_torch_on_the_plain_module(recipe: OptimizerRecipe, schedule: ScheduleRecipe) -> None:
    model = FlatModel(network())
    start = model.weights()
    then = start.value().clone()
    optimizer = LocalOptimizer(model, recipe, schedule)
    for step in range(20):
        model.zero_grad()
        backward(model.module, step)
        optimizer.step(step * BATCH)
    torch.testing.assert_close(model.weights().value(), trained_by_torch(recipe, schedule, 20), rtol=1e-5, atol=1e-6)
    assert torch.equal(start.value(), then)


def test_an_update_leaves_weights_and_gradient_as_they_were(recipe: OptimizerRecipe) -> None:
    w, g = (Flat.copy_of(torch.randn(1000, generator=torch.Generator().manual_seed(s))) for s in (1, 2))
    rule = make_rule(recipe)
    history = [w]
    copies = [w.value().clone()]
    for _ in range(4):
        history.append(rule(history[-1], g, 1))
        copies.append(history[-1].value().clone())
    assert all(torch.equal(v.value(), then) for v, then in zip(history, copies, strict=True))
    assert torch.equal(g.value(), torch.randn(1000, generator=torch.Generator().manual_seed(2)))
    assert len({v.tensor.data_ptr() for v in history}) == 5


def test_a_scaled_gradient_counts_with_its_scale(recipe: OptimizerRecipe) -> None:
    w, g = (Flat.copy_of(torch.randn(50, generator=torch.Generator().manual_seed(s))) for s in (1, 2))
    scaled = make_rule(recipe)(w, g * 0.3, 1)
    plain = make_rule(recipe)(w, Flat.wrap(g.tensor * 0.3), 1)
    torch.testing.assert_close(scaled.value(), plain.value())


def test_sgd_is_written_out_and_the_rest_is_torchs() -> None:
    kinds = {name: type(make_rule(recipe)) for name, recipe in RECIPES.items()}
    assert kinds == {name: SGD if name.startswith("sgd") else TorchRule for name in RECIPES}


def test_a_rule_goes_on_where_its_state_was_taken(recipe: OptimizerRecipe) -> None:
    grads = [Flat.copy_of(torch.randn(30, generator=torch.Generator().manual_seed(s))) for s in range(6)]
    w = Flat.copy_of(torch.zeros(30))
    rule = make_rule(recipe, SCHEDULE)
    for g in grads[:3]:
        w = rule(w, g, 20)
    state = rule.state()
    second = make_rule(recipe, SCHEDULE)
    second.load_state(copy.deepcopy(state))
    u = v = w
    for g in grads[3:]:
        u, v = rule(u, g, 20), second(v, g, 20)
    # The factor of a clipped gradient is carried along exactly; a state is numbers, rounded once.
    torch.testing.assert_close(u.value(), v.value(), rtol=0.0, atol=1e-7 if recipe.clip_norm else 0.0)
    with pytest.raises(KeyError):
        second.load_state({})


def test_a_rule_that_is_reset_goes_on_as_a_new_one_but_for_its_rate_and_schedule(recipe: OptimizerRecipe) -> None:
    grads = [Flat.copy_of(torch.randn(30, generator=torch.Generator().manual_seed(s))) for s in range(6)]
    rule, new = make_rule(recipe, SCHEDULE), make_rule(recipe, SCHEDULE)
    rule.reset()  # before it has anything to forget
    rule.set_lr(0.05)
    w = Flat.copy_of(torch.zeros(30))
    for g in grads[:3]:
        w = rule(w, g, 20)
    rule.reset()
    new.samples_seen, new.lr = 60, 0.05
    u = v = w
    for g in grads[3:]:
        u, v = rule(u, g, 20), new(v, g, 20)
    assert torch.equal(u.value(), v.value())
    assert rule.samples_seen == 120


def test_a_local_optimizer_goes_on_where_its_state_was_taken(recipe: OptimizerRecipe) -> None:
    def run(model: FlatModel, optimizer: LocalOptimizer, steps: range) -> None:
        for step in steps:
            model.zero_grad()
            backward(model.module, step)
            optimizer.step(0)

    one, two = FlatModel(network()), FlatModel(network())
    first, second = LocalOptimizer(one, recipe), LocalOptimizer(two, recipe)
    run(one, first, range(3))
    two.load(one.weights())
    second.load_state(first.state())
    run(one, first, range(3, 6))
    run(two, second, range(3, 6))
    assert torch.equal(one.weights().value(), two.weights().value())


def test_the_learning_rate_can_be_set_and_the_schedule_still_applies() -> None:
    schedule = ScheduleRecipe(name="step", every=10, factor=0.5)
    rule = make_rule(OptimizerRecipe(lr=1.0), schedule)
    w, g = Flat.copy_of(torch.zeros(1)), Flat.copy_of(torch.ones(1))
    w = rule(w, g, 10)
    assert w.value().item() == -1.0
    rule.set_lr(4.0)
    assert rule(w, g, 10).value().item() == -3.0

    model = FlatModel(nn.Linear(1, 1, bias=False))
    model.load(Flat.copy_of(torch.zeros(1)))
    optimizer = LocalOptimizer(model, OptimizerRecipe(lr=1.0), schedule)
    optimizer.set_lr(4.0)
    model.module(torch.ones(1, 1)).sum().backward()
    optimizer.step(10)
    assert model.weights().value().item() == -2.0


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(ConfigError, match="every"):
        make_rule(OptimizerRecipe(), ScheduleRecipe(name="step"))


def test_weight_decay_leaves_frozen_parameters_alone() -> None:
    module = network()
    frozen = module[0].weight.requires_grad_(False)
    before = frozen.clone()
    model = FlatModel(module)
    optimizer = LocalOptimizer(model, RECIPES["sgd-decay"])
    optimizer.step(0)
    assert torch.equal(frozen, before)
    assert frozen.numel() not in model.tensors


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_a_rule_gives_what_it_gives_on_the_host(recipe: OptimizerRecipe) -> None:
    host, gpu = make_rule(recipe), make_rule(recipe)
    w = Flat.copy_of(torch.randn(100))
    u, v = w, Flat.wrap(w.tensor.cuda())
    for _ in range(5):
        g = Flat.copy_of(torch.randn(100))
        u, v = host(u, g, 1), gpu(v, g, 1)
    torch.testing.assert_close(v.value().cpu(), u.value(), rtol=1e-4, atol=1e-5)
