"""A FlatModel by rows: what embeddings do to its gradient, and what loading weights costs."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from paceline.engine.model.flat_model import FlatModel
from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.vectors.flat import Flat


class Words(nn.Module):
    """Two tables, one of which no batch looks into, between dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.words = nn.Embedding(20, 3, sparse=True, padding_idx=0)
        self.unused = nn.Embedding(5, 2, sparse=True)
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.words(x).mean(1) * self.scale)
        return y


def words() -> Words:
    torch.manual_seed(5)
    return Words()


def gradient_of(module: nn.Module, x: Tensor) -> Tensor:
    plain = copy.deepcopy(module)
    plain.zero_grad()
    plain(x).square().sum().backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in plain.parameters()]
    return torch.cat([g.flatten() for g in grads])


def backward(model: FlatModel, x: Tensor) -> SparseFlat:
    model.zero_grad()
    model.module(x).square().sum().backward()
    g = model.gradient()
    assert isinstance(g, SparseFlat)
    return g


def rows_of(g: SparseFlat, table: int) -> list[int]:
    held = g.tables[table]
    assert isinstance(held, Rows)
    rows: list[int] = held.rows.tolist()
    return rows


def test_the_gradient_holds_the_rows_of_the_batch_and_is_that_of_plain_torch() -> None:
    module = words()
    model = FlatModel(module, by_rows=True)
    for x in (torch.tensor([[7, 3, 7], [0, 0, 3]]), torch.tensor([[1, 2, 4]]), torch.empty(0, 3, dtype=torch.int64)):
        wanted = gradient_of(module, x)
        g = backward(model, x)
        torch.testing.assert_close(g.value(), wanted)
        assert rows_of(g, 0) == sorted(set(x.flatten().tolist()) - {0})  # 0 is padding
        assert rows_of(g, 1) == []


def test_a_gradient_that_was_handed_out_stays_as_it_is() -> None:
    model = FlatModel(words(), by_rows=True)
    g = backward(model, torch.tensor([[1, 2, 3]]))
    before = g.value().clone()
    backward(model, torch.tensor([[1, 2, 4]]))
    torch.testing.assert_close(SparseFlat(g.where, g.dense, g.tables).value(), before)


def test_the_gradients_of_several_backward_passes_add_up() -> None:
    module = words()
    model = FlatModel(module, by_rows=True)
    x, y = torch.tensor([[1, 2]]), torch.tensor([[2, 5]])
    wanted = gradient_of(module, x) + gradient_of(module, y)
    model.zero_grad()
    module(x).square().sum().backward()
    module(y).square().sum().backward()
    torch.testing.assert_close(model.gradient().value(), wanted)


def test_a_table_that_is_also_used_densely_has_every_row_that_got_a_gradient() -> None:
    module = words()
    model = FlatModel(module, by_rows=True)
    model.zero_grad()
    (module(torch.tensor([[1, 2]])).sum() + module.words.weight.sum()).backward()
    g = model.gradient()
    assert isinstance(g, SparseFlat)
    assert rows_of(g, 0) == list(range(20))


def test_gradients_come_whole_where_nobody_asks_for_rows() -> None:
    model = FlatModel(words())
    model.zero_grad()
    model.module(torch.tensor([[1, 2]])).sum().backward()
    assert isinstance(model.gradient(), Flat)


def test_a_model_without_tables_knows_no_rows() -> None:
    model = FlatModel(nn.Linear(2, 2), by_rows=True)
    model.zero_grad()
    model.module(torch.ones(1, 2)).sum().backward()
    assert isinstance(model.gradient(), Flat)


def test_loading_the_next_weights_writes_the_rows_that_changed_and_no_others() -> None:
    module = words()
    model = FlatModel(module, by_rows=True)
    w = model.weights()
    w = w - backward(model, torch.tensor([[1, 2]])) * 0.1
    model.load(w)
    module.words.weight.data[9] = 77.0  # behind everybody's back, and in no gradient
    w = w - backward(model, torch.tensor([[4, 4]])) * 0.1
    model.load(w)
    assert module.words.weight[9].tolist() == [77.0] * 3
    module.words.weight.data[9] = w.value()[3 + 27 : 3 + 30]
    torch.testing.assert_close(torch.cat([p.detach().flatten() for p in module.parameters()]), w.value())


def test_weights_that_were_changed_in_place_are_loaded_again_as_a_whole() -> None:
    module = words()
    model = FlatModel(module, by_rows=True)
    w = model.weights() - backward(model, torch.tensor([[1, 2]])) * 0.1
    model.load(w)
    with torch.no_grad():
        module.words.weight.fill_(5.0)
    model.load(w - backward(model, torch.tensor([[1, 3]])) * 0.1)
    assert float(module.words.weight.detach().max()) < 5.0


def test_older_weights_can_be_loaded_again() -> None:
    module = words()
    model = FlatModel(module, by_rows=True)
    old = model.weights() - backward(model, torch.tensor([[1, 2]])) * 0.1
    numbers = old.value().clone()
    new = old - backward(model, torch.tensor([[2, 3]])) * 0.1
    model.load(new)
    model.load(SparseFlat(old.where, old.dense, old.tables))
    torch.testing.assert_close(torch.cat([p.detach().flatten() for p in module.parameters()]), numbers)
