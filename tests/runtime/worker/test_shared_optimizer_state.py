"""What an optimizer remembers before `join` goes on, and is there again at an exchange and after `close`."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data, toy_model

DATA = toy_data(96)
HALF = 4
"""Steps of the plain loop before `join`, and as many after it."""


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def nesterov(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.02)


def amsgrad(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.02, amsgrad=True)


def adagrad(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.05)


def in_groups(kind: Callable[..., torch.optim.Optimizer], **numbers: Any) -> Any:
    def made(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        first, *others = list(parameters)
        return kind([{"params": others, "weight_decay": 0.1}, {"params": [first], "lr": 0.03}], lr=0.02, **numbers)

    return made


KINDS = {
    "momentum": momentum,
    "nesterov": nesterov,
    "adamw": adamw,
    "amsgrad": amsgrad,
    "adagrad": adagrad,
    "groups of sgd": in_groups(torch.optim.SGD, momentum=0.9),
    "groups of adam": in_groups(torch.optim.Adam),
}


def batch(step: int, rank: int, workers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Six samples of each worker's own; of all workers together if `workers` is 0."""
    at = (12 * step) % 90
    rows = slice(at, at + 12) if not workers else slice(at + 6 * rank, at + 6 * rank + 6 if workers > 1 else at + 12)
    return DATA.tensors[0][rows], DATA.tensors[1][rows]


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        x, y = batch(step, 0, 0)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def vector(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


class Script:
    """Half of its steps in the plain loop, and the rest as workers; `only_one`: worker 0 alone loads the state."""

    def __init__(self, kind: Any, workers: int, *, only_one: bool = False) -> None:
        self.kind, self.workers, self.only_one = kind, workers, only_one
        self.model = toy_model()
        self.optimizer = kind(self.model.parameters())
        plain(self.model, self.optimizer, range(HALF))
        self.saved = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
        plain(self.model, self.optimizer, range(HALF, 2 * HALF))
        self.made: list[torch.optim.Optimizer] = []
        self.seen: list[Any] = []

    def make_model(self) -> nn.Module:
        model = toy_model()
        model.load_state_dict(copy.deepcopy(self.saved[0]))
        return model

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = self.kind(parameters)
        if not (self.only_one and threading.current_thread().name != "worker 0"):
            optimizer.load_state_dict(copy.deepcopy(self.saved[1]))
        self.made.append(optimizer)
        return optimizer

    def loop(self, pace: Pace, model: nn.Module) -> None:
        for step in range(HALF, 2 * HALF):
            x, y = batch(step, pace.rank, self.workers)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(len(x))
        if pace.rank == 0 and pace.at_exchange:
            self.seen.append(copy.deepcopy(pace.optimizer.state_dict()))

    def run(self, out: Path, scheme: str, servers: int, **parameters: Any) -> nn.Module:
        _, models = run_loops(
            out,
            scheme,
            self.loop,
            workers=self.workers,
            servers=servers,
            optimizer=self.make_optimizer,
            make_model=self.make_model,
            **parameters,
        )
        return models[0]


def same(found: Any, wanted: Any) -> None:
    """Two optimizers' `state_dict`, to the last bits of float32."""
    assert found["state"].keys() == wanted["state"].keys()
    for number, own in wanted["state"].items():
        for name, value in own.items():
            if value is not None:
                torch.testing.assert_close(found["state"][number][name], value, rtol=2e-5, atol=1e-7, check_dtype=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (2, 2), (2, 0)])
def test_a_state_from_before_join_goes_on_and_is_there_afterwards(
    kind: str, workers: int, servers: int, out: Path
) -> None:
    script = Script(KINDS[kind], workers)
    model = script.run(out, "bsp", servers)
    torch.testing.assert_close(vector(model), vector(script.model), rtol=1e-5, atol=1e-6)
    wanted = script.optimizer.state_dict()
    same(script.seen[0], wanted)
    for optimizer in script.made:
        same(optimizer.state_dict(), wanted)


@pytest.mark.parametrize("scheme", ["asp", "ssp", "dssp", "gsp", "dcasgd", "ksync", "weedout", "partial", "lbbsp"])
def test_so_does_every_scheme_whose_servers_make_the_steps(scheme: str, out: Path) -> None:
    script = Script(momentum, 1)
    model = script.run(out, scheme, 1)
    torch.testing.assert_close(vector(model), vector(script.model), rtol=1e-5, atol=1e-6)
    same(script.made[0].state_dict(), script.optimizer.state_dict())


@pytest.mark.parametrize("scheme", ["adpsgd", "sgp", "localsgd", "esync", "diloco", "gosgd"])
def test_and_every_one_whose_workers_make_them(scheme: str, out: Path) -> None:
    script = Script(adamw, 1)
    more: dict[str, Any] = {"outer_lr": 1.0, "outer_momentum": 0.0} if scheme == "diloco" else {}
    model = script.run(out, scheme, 0, **more)
    torch.testing.assert_close(vector(model), vector(script.model), rtol=1e-5, atol=1e-6)
    same(script.made[0].state_dict(), script.optimizer.state_dict())


@pytest.mark.parametrize("kind", ["momentum", "adamw", "adagrad"])
@pytest.mark.parametrize("servers", [0, 1])
def test_it_is_enough_that_worker_0_has_loaded_it(kind: str, servers: int, out: Path) -> None:
    script = Script(KINDS[kind], 2, only_one=True)
    model = script.run(out, "bsp", servers)
    torch.testing.assert_close(vector(model), vector(script.model), rtol=1e-5, atol=1e-6)
    for optimizer in script.made:
        same(optimizer.state_dict(), script.optimizer.state_dict())


def test_in_the_middle_of_an_exchange_there_is_none(out: Path) -> None:
    asked: list[str] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for step in range(4):
            x, y = batch(step, 0, 1)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(len(x))
            if not pace.at_exchange:  # bsp.steps = 2
                with pytest.raises(ConfigError, match="middle of an exchange"):
                    pace.optimizer.state_dict()
                asked.append("refused")

    run_loops(out, "bsp", loop, workers=1, optimizer=momentum, steps=2)
    assert asked


def test_what_is_loaded_after_join_is_named(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        pace.optimizer.load_state_dict(momentum(model.parameters()).state_dict())

    run_loops(out, "asp", loop, workers=1, optimizer=momentum)
    assert "load the state before paceline.join" in capsys.readouterr().err


def test_a_state_that_is_cleared_after_join_is_named_once(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    optimizers = []

    def loop(pace: Pace, model: nn.Module) -> None:
        pace.optimizer.state_dict()
        for _ in range(2):
            pace.optimizer.state.clear()
        assert copy.deepcopy(pace.optimizer.state) == {}
        optimizers.append(pace.optimizer)

    run_loops(out, "asp", loop, workers=1, optimizer=momentum)
    assert capsys.readouterr().err.count("optimizer.state.clear() changes nothing where servers make the steps") == 1
    optimizers[0].state.clear()
    assert not capsys.readouterr().err, "after the run it is the script's own"


def test_a_scheme_with_a_momentum_of_its_own_says_that_this_one_begins_anew(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Script(momentum, 1).run(out, "eamsgd", 1)
    assert "begins anew: eamsgd has a momentum of its own" in capsys.readouterr().err


class HalfUsed(nn.Module):
    """Its second layer takes part from the third epoch on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 2), nn.Linear(6, 2)
        generator = torch.Generator().manual_seed(3)  # workers are threads, which share torch's own
        for p in self.parameters():
            nn.init.normal_(p, std=0.5, generator=generator)
        self.batches = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        return self.first(x) + (self.second(x) if self.batches > 16 else 0.0)


@pytest.mark.parametrize("kind", ["momentum", "adamw", "amsgrad", "groups of adam"])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_part_of_the_model_does_not_remember_yet_costs_the_others_nothing(
    kind: str, workers: int, out: Path
) -> None:
    """Each server has one layer. The law of resuming, from a state at which the second has made no step."""
    states: dict[int, Any] = {}
    seen: list[Any] = []

    def loop(epochs: int) -> Callable[[Pace, nn.Module], None]:
        def train(pace: Pace, model: nn.Module) -> None:
            assert isinstance(model, HalfUsed)
            model.batches = 8 * (pace.total_samples // len(DATA))
            for _ in range(epochs):
                for x, y in pace.batches(DATA, 12 // workers, epochs=1):
                    nn.functional.cross_entropy(model(x), y).backward()
                    pace.step()
            if epochs == 2:
                states[pace.rank] = pace.state_dict()
                if pace.rank == 0:
                    seen.append(copy.deepcopy(pace.optimizer.state_dict()["state"]))

        return train

    more: dict[str, Any] = {"workers": workers, "servers": 2, "optimizer": KINDS[kind], "make_model": HalfUsed}
    _, whole = run_loops(out / "whole", "bsp", loop(4), **more)
    run_loops(out / "half", "bsp", loop(2), **more)
    _, rest = run_loops(out / "rest", "bsp", loop(4), states=states, **more)
    assert torch.equal(vector(rest[0]), vector(whole[0]))
    assert seen[0]
    assert all(any(v.any() for v in own.values() if v is not None) for own in list(seen[0].values())[:2])
