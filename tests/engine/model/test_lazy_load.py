"""Weights that arrive late are in place wherever somebody looks at them, and not waited for before."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paceline.core.errors import PeerLost, Stopped, TimedOut
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.lazy_load import fit
from paceline.engine.vectors.chunked import Chunks
from paceline.engine.vectors.flat import Flat


class Borrowing(nn.Module):
    """Uses weights of modules that it never calls, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.attention = nn.MultiheadAttention(6, 2)
        self.lstm = nn.LSTM(6, 6)
        self.scale = nn.Parameter(torch.ones(6))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.linear(x, self.first.weight) * self.scale
        x = self.attention(x, x, x)[0] + nn.functional.linear(x, self.first.weight, self.second.bias)
        return self.lstm(x)[0]


def model() -> tuple[nn.Module, FlatModel]:
    torch.manual_seed(5)
    module = Borrowing()
    return module, FlatModel(module)


def arriving(flat: FlatModel, timeout_s: float = 5.0) -> tuple[Chunks, Tensor]:
    """New weights for `flat`, a part for each parameter, none there; and their numbers."""
    numbers = torch.randn(len(flat), generator=torch.Generator().manual_seed(9))
    edges = list(itertools.accumulate((p.numel() for p in flat.parameters), initial=0))
    return Chunks(edges, what="weights", timeout_s=timeout_s, home=Flat(numbers)), numbers


def bring_all(parts: Chunks) -> None:
    for part in range(len(parts.edges) - 1):
        parts.put(part)


X = torch.randn(3, 1, 6, generator=torch.Generator().manual_seed(1))


def forward(module: nn.Module) -> Tensor:
    return module(X)


@pytest.mark.parametrize(
    "look",
    [
        forward,
        lambda module: checkpoint(module, X, use_reentrant=False),
        lambda module: torch.func.functional_call(module, dict(module.named_parameters()), (X,)),
        lambda module: copy.deepcopy(module)(X),
        lambda module: nn.utils.parameters_to_vector(module.parameters()),
        lambda module: torch.cat([t.flatten() for t in module.state_dict().values()]),
        lambda module: module.first.weight.detach().numpy().copy(),
        lambda module: torch.linalg.vector_norm(module.first.weight),
    ],
    ids=["forward", "checkpoint", "functional", "deepcopy", "vector", "state_dict", "numpy", "norm"],
)
def test_whoever_looks_sees_the_new_weights(look: Callable[[nn.Module], Tensor]) -> None:
    (module, flat), (plain, its_flat) = model(), model()
    parts, numbers = arriving(flat)
    its_flat.load(Flat(numbers))
    bring = threading.Timer(0.01, bring_all, [parts])
    bring.start()
    flat.load(parts.vector, late=True)
    assert torch.equal(torch.as_tensor(look(module)), torch.as_tensor(look(plain)))
    bring.join()
    assert torch.equal(flat.weights().value(), numbers)


def test_a_layer_waits_for_its_own_weights_only() -> None:
    module, flat = model()
    parts, numbers = arriving(flat, timeout_s=0.02)
    flat.load(parts.vector, late=True)
    names = [name for name, _ in flat.layout()]
    for name in ("first.weight", "first.bias"):
        parts.put(names.index(name))
    first = module.get_submodule("first")
    wanted = nn.functional.linear(X, numbers[6:42].view(6, 6), numbers[42:48])
    assert torch.equal(first(X), wanted)
    assert not flat.settled
    with pytest.raises(TimedOut, match="weights"):
        module.get_submodule("second")(X)


def test_sizes_and_gradients_may_be_looked_at_without_waiting() -> None:
    module, flat = model()
    parts, _ = arriving(flat, timeout_s=0.0)
    flat.load(parts.vector, late=True)
    for p in module.parameters():
        assert p.requires_grad
        assert p.grad is not None
        assert p.grad.shape == p.shape
        assert p.grad.numel() == p.numel()
    flat.zero_grad()
    flat.lend_arriving("a gradient")
    assert not flat.settled


def test_afterwards_the_parameters_are_what_they_were() -> None:
    module, flat = model()
    kinds = [type(p) for p in module.parameters()]
    parts, numbers = arriving(flat)
    bring_all(parts)
    flat.load(parts.vector[:], late=True)  # all there: copied at once
    assert flat.settled
    flat.load(parts.vector * 0.5, late=True)
    flat.settle()
    assert [type(p) for p in module.parameters()] == kinds
    assert torch.equal(flat.weights().value(), numbers * 0.5)


def test_weights_that_were_changed_after_they_came_are_noticed() -> None:
    module, flat = model()
    parts, numbers = arriving(flat)
    flat.load(parts.vector, late=True)
    bring_all(parts)
    with torch.no_grad():
        module.get_parameter("scale").mul_(3.0)
    flat.settle()
    assert torch.equal(flat.weights().value()[:6], numbers[:6] * 3)


def test_each_part_is_reported_with_its_new_weights_before_anybody_uses_it() -> None:
    module, flat = model()
    parts, numbers = arriving(flat)
    found: list[tuple[int, int]] = []

    def note(start: int, stop: int) -> None:
        assert torch.equal(flat.numbers()[0][start:stop], numbers[start:stop])
        found.append((start, stop))

    flat.on_arrival(note)
    flat.load(parts.vector, late=True)
    bring_all(parts)
    for p in module.parameters():
        p.data.mul_(0.5)  # behind torch's back, as a loop may limit its weights
    assert sum(stop - start for start, stop in found) == len(flat)


def test_new_weights_take_the_place_of_those_still_awaited() -> None:
    module, flat = model()
    flat.load(arriving(flat)[0].vector, late=True)
    new = torch.arange(len(flat), dtype=torch.float32)
    flat.load(Flat(new))
    assert flat.settled
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), new)


def test_a_lost_server_is_told_to_who_looks() -> None:
    module, flat = model()
    parts, _ = arriving(flat)
    flat.load(parts.vector, late=True)
    parts.fail(PeerLost("lost server 1: gone"))
    with pytest.raises(PeerLost, match="lost server 1"):
        module(X)


def test_the_end_of_the_run_leaves_the_old_weights_in_place() -> None:
    module, flat = model()
    before = flat.weights().value().clone()
    parts, _ = arriving(flat)
    flat.load(parts.vector, late=True)
    parts.fail(Stopped("steps"))
    module(X)
    assert flat.settled
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), before)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_takes_its_weights_past_python_is_left_alone() -> None:
    assert fit(nn.Linear(2, 2))
    assert not fit(nn.Sequential(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))))
    assert not fit(torch.compile(nn.Linear(2, 2), backend="eager"))
    compiled = nn.Linear(2, 2)
    compiled.compile(backend="eager")
    assert not fit(nn.Sequential(compiled))
