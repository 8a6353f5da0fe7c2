"""Gradients of a FlatModel: views of one buffer, handed out without a copy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.engine.model import flat_gradients
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import Flat, FlatMemory
from tests.engine.model.test_flat_model import backward, gradient_of, small


@pytest.fixture
def separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets autograd make gradients apart on the CPU as it does on a GPU."""
    monkeypatch.setattr(flat_gradients, "SEPARATE_ON", frozenset({"cpu", "cuda"}))


def test_the_gradient_is_that_of_plain_torch_and_costs_no_copy() -> None:
    module = small()
    wanted = gradient_of(module)
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    g = model.gradient()
    torch.testing.assert_close(g.value(), wanted)
    assert g.tensor.data_ptr() == next(module.parameters()).grad.data_ptr()  # type: ignore[union-attr]
    assert model.flat_parameter.grad is not None
    assert model.flat_parameter.grad.data_ptr() == g.tensor.data_ptr()


def test_gradients_accumulate_until_zero_grad() -> None:
    module = small()
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    backward(module)
    torch.testing.assert_close(model.gradient().value(), 2 * gradient_of(module))


def test_a_gradient_that_nobody_holds_is_made_in_the_same_buffer() -> None:
    module = small()
    model = FlatModel(module)
    places = set()
    for _ in range(5):
        model.zero_grad()
        backward(module)
        places.add(model.gradient().tensor.data_ptr())
    assert len(places) == 1


@pytest.mark.parametrize(
    "hold",
    [
        lambda g: g,
        lambda g: g[3:9],
        lambda g: g * 0.5,
        lambda g: g.value().view(1, -1),
        lambda g: FlatMemory().bytes_of(g),
    ],
    ids=["itself", "slice", "scaled", "tensor", "bytes"],
)
def test_a_gradient_that_somebody_holds_never_changes(hold: object) -> None:
    module = small()
    model = FlatModel(module)
    held = []
    for seed in range(6):
        model.zero_grad()
        backward(module, seed)
        g = model.gradient()
        held.append((hold(g), g.value().clone()))  # type: ignore[operator]
        del g
        if seed == 3:
            held.pop(1)
    for seed, (kept, then) in zip((0, 2, 3, 4, 5), held, strict=True):
        torch.testing.assert_close(then, gradient_of(module, seed))
        wanted = hold(Flat.wrap(then))  # type: ignore[operator]
        if isinstance(kept, Flat):
            assert torch.equal(kept.value(), wanted.value())
        elif isinstance(kept, torch.Tensor):
            assert torch.equal(kept, wanted)
        else:
            assert kept == wanted


def test_gradients_held_in_turn_need_two_buffers_only() -> None:
    module = small()
    model = FlatModel(module)
    places, last = set(), None
    for _ in range(10):
        model.zero_grad()
        backward(module)
        last = model.gradient()
        places.add(last.tensor.data_ptr())
    assert len(places) == 2


def test_gradients_dropped_or_replaced_by_the_user_come_home() -> None:
    module = small()
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    held = model.gradient()
    then = held.value().clone()
    torch.optim.SGD(module.parameters(), lr=0.1).zero_grad()  # drops every .grad
    backward(module, seed=1)
    g = model.gradient()
    torch.testing.assert_close(g.value(), gradient_of(module, seed=1))
    assert torch.equal(held.value(), then)
    assert next(module.parameters()).grad.data_ptr() == g.tensor.data_ptr()  # type: ignore[union-attr]

    first = next(module.parameters())
    first.grad = None
    model.zero_grad()
    assert first.grad is not None
    assert not model.gradient().value().any()


def test_sparse_gradients_come_home_dense() -> None:
    module = nn.Embedding(6, 2, sparse=True)
    model = FlatModel(module)
    for p in module.parameters():
        p.grad = None
    module(torch.tensor([1, 1, 4])).sum().backward()
    assert model.gradient().value().view(6, 2)[:, 0].tolist() == [0, 2, 0, 0, 1, 0]


def test_a_table_whose_gradient_was_dropped_has_none() -> None:
    module = nn.Embedding(6, 2, sparse=True)
    model = FlatModel(module, by_rows=True)
    model.zero_grad()
    module(torch.tensor([1, 4])).sum().backward()
    assert model.has_gradient
    module.weight.grad = None
    assert not model.has_gradient


@pytest.mark.usefixtures("separate")
def test_gradients_that_are_made_apart_are_joined_when_they_are_asked_for() -> None:
    module = small()
    wanted = [gradient_of(module, seed) for seed in range(3)]
    model, held = FlatModel(module), list[Flat]()
    for seed in range(3):
        model.zero_grad()
        assert not model.has_gradient
        assert all(p.grad is None for p in module.parameters())
        backward(module, seed)
        assert model.has_gradient
        g = model.gradient()
        assert isinstance(g, Flat)
        assert model.unused() == ()
        held.append(g)
    for g, one in zip(held, wanted, strict=True):
        assert torch.equal(g.value(), one)


@pytest.mark.usefixtures("separate")
def test_parameters_without_a_gradient_are_told_where_gradients_are_made_apart() -> None:
    module = small()
    model = FlatModel(module)
    for frozen in (True, False):
        model.zero_grad()
        backward(module)
        if frozen:
            module[3].weight.grad = None
        g, at = model.gradient(), len(model) - module[3].weight.numel()
        assert model.unused() == (((at, len(model)),) if frozen else ())
        assert bool(g.value()[at:].any()) is not frozen


@pytest.mark.usefixtures("separate")
def test_two_backward_passes_add_up_where_gradients_are_made_apart() -> None:
    module = small()
    wanted = gradient_of(module, 0) + gradient_of(module, 1)
    model = FlatModel(module)
    model.zero_grad()
    backward(module, 0)
    backward(module, 1)
    torch.testing.assert_close(model.gradient().value(), wanted)


@pytest.mark.usefixtures("separate")
def test_gradients_that_leave_early_are_made_in_one_buffer() -> None:
    module = small()
    wanted = gradient_of(module)
    model = FlatModel(module)
    model.join_gradients()
    model.join_gradients()
    model.zero_grad()
    backward(module)
    assert model.gradient().tensor.data_ptr() == module[0].weight.grad.data_ptr()
    assert torch.equal(model.gradient().value(), wanted)


@pytest.mark.usefixtures("separate")
def test_a_gradient_is_put_where_an_optimizer_finds_it_although_others_are_made_apart() -> None:
    module = small()
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    g = model.gradient()
    model.put_gradient(g * 2.0, ())
    found = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    assert torch.equal(found, 2.0 * g.value())
    model.zero_grad()
    assert not model.has_gradient


@pytest.mark.usefixtures("separate")
def test_gradients_that_were_joined_for_a_while_are_apart_again() -> None:
    module = small()
    model = FlatModel(module)
    model.join_gradients()
    backward(module)
    joined = model.gradient()
    model.separate_gradients()
    assert torch.equal(joined.value(), gradient_of(module))
    model.zero_grad()
    assert all(p.grad is None for p in module.parameters())
    backward(module, 1)
    assert torch.equal(model.gradient().value(), gradient_of(module, 1))
    assert model.unused() == ()
    assert torch.equal(joined.value(), gradient_of(module))


def test_gradients_that_were_never_apart_stay_joined() -> None:
    module = small()
    model = FlatModel(module)
    model.separate_gradients()
    model.zero_grad()
    assert all(p.grad is not None for p in module.parameters())
