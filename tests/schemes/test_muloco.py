"""MuLoCo: DiLoCo, with other numbers and another optimizer inside."""

from typing import Any

import numpy as np
import pytest
import torch

import paceline
from paceline import config
from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.engine.muon import MuonWithAdamW
from paceline.sim import LocalSteps, Simulation
from tests.runtime.own_loops import plain_steps, toy_data, toy_model

GOALS = np.array([[1.0, 0.0, 2.0], [5.0, 2.0, -2.0]])
PARAMETERS: list[dict[str, Any]] = [
    {"h": 3, "outer_lr": 0.5, "outer_momentum": 0.8},
    {"h": 6, "fragments": 2, "delay": 1, "outer_lr": 0.7, "outer_momentum": 0.6},
    {"h": 6, "eager": True, "outer_lr": 0.5, "outer_momentum": 0.5},
]


def simulated(name: str, **parameters: Any) -> Any:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=0.1)
    sim = Simulation(make(name, parameters), np.zeros(3), work, workers=2, servers=1)
    return sim.run(until=60).model()


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_with_sgd_inside_it_is_diloco(parameters: dict[str, Any]) -> None:
    assert simulated("muloco", **parameters).tobytes() == simulated("diloco", **parameters).tobytes()


def trained(scheme: str, make_optimizer: Any, **parameters: Any) -> torch.Tensor:
    model = toy_model()
    with paceline.join(model, make_optimizer(model), scheme=scheme, **parameters) as pace:
        plain_steps(pace, model, toy_data())
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1)


def test_in_a_loop_of_ones_own_with_sgd_it_is_diloco() -> None:
    numbers = {"h": 4, "outer_lr": 0.5, "outer_momentum": 0.6}
    assert torch.equal(trained("muloco", sgd, **numbers), trained("diloco", sgd, **numbers))


def test_a_loop_of_ones_own_gives_muon() -> None:
    def muon(model: torch.nn.Module) -> torch.optim.Optimizer:
        return MuonWithAdamW(model, 0.01)

    numbers = {"h": 4, "outer_lr": 0.5, "outer_momentum": 0.6}
    assert torch.equal(trained("muloco", muon, **numbers), trained("diloco", muon, **numbers))
    assert not torch.equal(trained("muloco", muon, **numbers), trained("muloco", sgd, **numbers))


def optimizer_of(**run: dict[str, Any]) -> str:
    return config.build(run).optimizer.name


def test_the_command_takes_muon_where_no_optimizer_is_named() -> None:
    assert optimizer_of(run={"scheme": "muloco"}) == "muon"
    assert optimizer_of(run={"scheme": "muloco"}, optimizer={"lr": 0.01}) == "muon"
    assert optimizer_of(run={"scheme": "muloco"}, optimizer={"name": "sgd"}) == "sgd"
    assert optimizer_of(run={"scheme": "muloco"}, optimizer={"momentum": 0.9}) == "sgd", "which muon does not have"
    assert optimizer_of(run={"scheme": "diloco"}) == "sgd"
    assert optimizer_of() == "sgd"


@pytest.mark.parametrize("run", [{"scheme": "bsp"}, {"scheme": "sgp"}, {"scheme": "asp"}])
def test_muon_is_refused_where_gradients_travel(run: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give --scheme muloco"):
        config.build({"run": run, "optimizer": {"name": "muon"}})


def test_it_takes_every_scheme_with_local_steps() -> None:
    for scheme in ("diloco", "localsgd", "esync", "asyncdiloco", "gosgd"):
        assert optimizer_of(run={"scheme": scheme}, optimizer={"name": "muon"}) == "muon"
