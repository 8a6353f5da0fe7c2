"""Vectors leave a GPU beside its work, with the numbers that its work has given them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.engine.vectors.pinned_copy import to_host

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
LONG = 50_000_000  # cycles


@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_what_leaves_is_what_the_gpu_was_told_to_make_before(scale: float) -> None:
    x = torch.zeros(100_000, device="cuda")
    torch.cuda._sleep(LONG)
    x += 3.0
    host = to_host(x, scale)
    assert host.is_pinned()
    assert torch.equal(host, torch.full((100_000,), 3.0 * scale))


def test_what_the_gpu_is_told_to_do_meanwhile_is_not_waited_for() -> None:
    x, other = torch.ones(100_000, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(other):
        torch.cuda._sleep(40 * LONG)
        after = other.record_event()
    assert torch.equal(to_host(x), torch.ones(100_000))
    assert not after.query()


def test_a_gradient_leaves_and_weights_come_back_without_a_wait_in_between() -> None:
    torch.manual_seed(1)
    module = nn.Linear(300, 300)
    model, memory = FlatModel(module, "cuda"), FlatMemory("cuda")
    model.zero_grad()
    module(torch.ones(4, 300, device="cuda")).square().mean().backward()
    g = model.gradient()
    assert isinstance(g, Flat)
    arrived = memory.empty(len(model))
    memory.bytes_of(arrived)[:] = memory.bytes_of(g)
    model.load(arrived)
    assert torch.equal(model.weights().value().cpu(), g.value().cpu())
    assert torch.equal(torch.cat([p.detach().flatten() for p in module.parameters()]), g.value())
