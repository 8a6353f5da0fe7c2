"""What docs/own-loop.md says that no other test holds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError
from paceline.launch.local.environment import PREFIX
from tests.runtime.own_loops import plain_steps, toy_data, toy_model


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"{PREFIX}COORDINATOR", raising=False)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_parameters_stay_the_same_objects(scheme: str) -> None:
    model = toy_model()
    before = dict(model.named_parameters())
    numbers = {name: p.clone() for name, p in before.items()}
    with paceline.join(model, adam(model), scheme=scheme) as pace:
        assert all(torch.equal(p, numbers[name]) for name, p in model.named_parameters())
        plain_steps(pace, model, toy_data())
    assert all(p is before[name] and type(p) is nn.Parameter for name, p in model.named_parameters())


@pytest.mark.parametrize("scheme", ["asp", "ssp"])
def test_where_servers_update_the_optimizer_stays_empty(scheme: str) -> None:
    model = toy_model()
    optimizer = adam(model)
    with paceline.join(model, optimizer, scheme=scheme) as pace:
        steps = plain_steps(pace, model, toy_data())
        assert not optimizer.state
    assert all(optimizer.state[p]["step"] == steps for p in model.parameters())


@pytest.mark.parametrize("scheme", ["bsp", "esync", "localsgd"])  # alone, bsp has no servers
def test_where_workers_make_the_steps_the_optimizer_itself_does(scheme: str) -> None:
    model = toy_model()
    optimizer = adam(model)
    with paceline.join(model, optimizer, scheme=scheme) as pace:
        steps = plain_steps(pace, model, toy_data())
    assert all(optimizer.state[p]["step"] == steps for p in model.parameters())


@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_a_model_that_is_moved_after_join_ends_the_loop_with_the_reason(scheme: str) -> None:
    model = toy_model()
    pace = paceline.join(model, adam(model), scheme=scheme)
    model.double().float()
    with pytest.raises(ConfigError, match="moved or converted"), pace:
        plain_steps(pace, model, toy_data())
