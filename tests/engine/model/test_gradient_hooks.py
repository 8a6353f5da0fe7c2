"""The gradient as it comes, and what would make it wrong."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.gradient_hooks import Backward

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """Three layers of which the middle one is used twice, a frozen one, and one that is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.last = (nn.Linear(5, 5) for _ in range(3))
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.unused = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.frozen(self.shared(self.shared(self.first(x)).relu())))


def made() -> tuple[nn.Module, FlatModel, Backward]:
    torch.manual_seed(2)
    module = Net()
    flat = FlatModel(module)
    flat.zero_grad()
    return module, flat, Backward(flat)


def trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def plain_gradient(module: nn.Module) -> Tensor:
    plain = copy.deepcopy(module)
    for p in plain.parameters():
        p.grad = None
    plain(X).square().mean().backward()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for _, p in trained(plain)])


def test_the_last_layers_are_there_first_and_every_number_is_the_last_one_it_has() -> None:
    module, flat, backward = made()
    wanted = plain_gradient(module)
    seen: list[set[str]] = []
    early: dict[str, Tensor] = {}

    def arrived() -> None:
        at = 0
        for name, p in trained(module):
            piece = g[at : at + p.numel()]
            if piece.there and name not in early:
                early[name] = piece.value().clone()
            at += p.numel()
        seen.append(set(early))

    g = backward.open("a gradient", arrived)
    module(X).square().mean().backward()
    assert seen[0] <= {"last.weight", "last.bias"}
    assert [len(names) for names in seen] == [1, 2, 3, 4, 5, 6]
    assert seen[3] == {"last.weight", "last.bias", "shared.weight", "shared.bias"}
    assert not g.there  # the layers that backward does not reach
    assert not backward.unused
    backward.close()
    unused = len(flat) - 30
    assert list(backward.unused) == [(unused, len(flat))]
    assert g.there
    assert torch.equal(g.value(), wanted)
    at = 0
    for name, p in trained(module):
        if name in early:
            assert torch.equal(early[name], wanted[at : at + p.numel()])
        at += p.numel()


def test_step_after_step_it_is_the_gradient_of_plain_torch() -> None:
    module, flat, backward = made()
    for step in range(3):
        flat.zero_grad()
        wanted = plain_gradient(module)
        g = backward.open("a gradient", lambda: None)
        module(X).square().mean().backward()
        backward.close()
        assert torch.equal(g.value(), wanted), step
        with torch.no_grad():
            flat.flat_parameter.sub_(g.value(), alpha=0.1)
    held, before = g, g.value().clone()
    flat.zero_grad()  # while somebody still has it
    module(X).square().mean().backward()
    assert torch.equal(held.value(), before)


def test_gradients_that_the_owner_dropped_are_brought_home() -> None:
    module, flat, backward = made()
    wanted = plain_gradient(module)
    g = backward.open("a gradient", lambda: None)
    for p in module.parameters():
        p.grad = None
    module(X).square().mean().backward()
    backward.close()
    assert torch.equal(g.value(), wanted)
    assert torch.equal(flat.gradient().value(), wanted)


def test_two_losses_over_different_parameters_are_one_gradient() -> None:
    torch.manual_seed(2)
    module = nn.ModuleList([nn.Linear(5, 1), nn.Linear(5, 1)])
    flat = FlatModel(module)
    flat.zero_grad()
    backward = Backward(flat)
    g = backward.open("a gradient", lambda: None)
    for layer in module:
        layer(X).sum().backward()
    backward.close()
    assert torch.equal(g.value(), torch.cat([X.sum(0), torch.tensor([4.0])] * 2))


def test_a_second_backward_over_the_same_parameters_is_refused() -> None:
    module, _, backward = made()
    backward.open("a gradient", lambda: None)
    module(X).sum().backward()
    with pytest.raises(ConfigError, match=r"last\.\w+ got a gradient twice before pace.step.*--overlap off"):
        module(X).sum().backward()


def test_checkpoints_that_call_backward_in_parts_are_refused() -> None:
    layer = nn.Linear(5, 5)
    backward = Backward(flat := FlatModel(layer))
    flat.zero_grad()
    x = X.clone().requires_grad_()
    backward.open("a gradient", lambda: None)
    twice = checkpoint(layer, checkpoint(layer, x, use_reentrant=True), use_reentrant=True)
    with pytest.raises(ConfigError, match="twice"):
        twice.sum().backward()


def test_clipping_after_backward_is_refused() -> None:
    module, _, backward = made()
    backward.open("a gradient", lambda: None)
    module(X).sum().backward()
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    with pytest.raises(ConfigError, match=r"changed between backward and pace.step.*clipping.*--overlap off"):
        backward.close()


def test_once_ended_it_watches_no_more() -> None:
    module, _, backward = made()
    heard: list[None] = []
    backward.open("a gradient", lambda: heard.append(None))
    backward.end()
    module(X).sum().backward()
    module(X).sum().backward()
    assert not heard
