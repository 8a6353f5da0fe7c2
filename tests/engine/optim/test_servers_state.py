"""What an optimizer remembers survives the way to the servers' rules and back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from paceline.engine.optim.recipe import recipe_of
from paceline.engine.optim.servers_state import from_servers, remembers, to_servers

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
MAKES: dict[str, Make] = {
    "sgd": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
    "adam": lambda ps: torch.optim.Adam(ps, 0.1),
    "groups": lambda ps: torch.optim.AdamW([{"params": ps[:1]}, {"params": ps[1:], "lr": 0.2}], 0.1),
    "adadelta": lambda ps: torch.optim.Adadelta(ps, 0.1),
}


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(1)
    return [nn.Parameter(torch.randn(shape)) for shape in ((2, 3), (0,), (4,), (1, 1))]


def steps(optimizer: torch.optim.Optimizer, of: list[nn.Parameter], used: int) -> None:
    for p in of:
        p.grad = torch.ones_like(p)
    for p in of[used:]:
        p.grad = None
    optimizer.step()


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("used", [3, 4])
def test_it_comes_back_as_it_went(make: Make, used: int) -> None:
    own = parameters()
    optimizer = make(own)
    assert not remembers(optimizer)
    steps(optimizer, own, 4 if used == 4 else 3)
    steps(optimizer, own, 4)
    assert remembers(optimizer)
    recipe = recipe_of(optimizer)
    before = copy.deepcopy(optimizer.state_dict()["state"])
    given = to_servers(recipe, optimizer, own)
    assert given is not None
    assert {len(v) for v in given[0].values()} == {sum(p.numel() for p in own)}
    optimizer.state.clear()
    from_servers(recipe, *given, optimizer, own)
    found: dict[int, Any] = optimizer.state_dict()["state"]
    for number in (0, 2, 3):
        assert found[number].keys() == before[number].keys()
        for name, value in before[number].items():
            assert torch.equal(found[number][name], value), (number, name)


def test_tensors_that_are_no_part_of_the_vector_cannot_be_given() -> None:
    own = [nn.Parameter(torch.randn(8, 8))]
    optimizer = torch.optim.Adafactor(own, 0.1)
    steps(optimizer, own, 1)
    assert to_servers(recipe_of(optimizer), optimizer, own) is None
