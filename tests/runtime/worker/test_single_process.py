"""A worker that is alone trains as the plain loop would, whatever the user's loop does around it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError, Diverged
from paceline.core.scheme import names
from paceline.engine.data.partition_plan import make_partition
from paceline.launch.local.environment import PREFIX
from tests.runtime.own_loops import plain_steps, toy_data, toy_model

MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.2),
    "nesterov": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(f"{PREFIX}COORDINATOR", raising=False)
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:  # those of the run end by themselves, a moment later
        thread.join(60.0)
        assert not thread.is_alive(), thread.name


def batches(epochs: int = 2) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    x, y = toy_data().tensors
    shares = make_partition("uniform", len(x), 1, None, 0)
    for epoch in range(epochs):
        for part in torch.from_numpy(shares.indices(0, epoch)).split(8):
            yield x[part], y[part]


def plain(make_optimizer: MakeOptimizer, gamma: float = 1.0) -> nn.Module:
    """The same training without Paceline."""
    model = toy_model()
    optimizer = make_optimizer(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    for x, y in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()
    return model


def assert_same(model: nn.Module, other: nn.Module) -> None:
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


NOT_PLAIN = {"slowmo", "diloco", "muloco", "noloco", "asyncdiloco", "decoupled", "easgd", "eamsgd", "lbbsp", "halos"}
"""An outer optimizer, a spring to a centre, batches that run over the end of an epoch: more than the plain loop."""
ROUNDS = {"sparseloco": {"h": 8}, "tiers": {"outer": "bsp"}}
"""Rounds of which the 24 steps are a multiple, where by default they are not: what a round has not finished is lost."""


@pytest.mark.parametrize("scheme", sorted(set(names()) - NOT_PLAIN))
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_it_equals_the_plain_loop(scheme: str, optimizer: str) -> None:
    model = toy_model()
    pace = paceline.join(model, OPTIMIZERS[optimizer](model), scheme=scheme, **ROUNDS.get(scheme, {}))
    steps = plain_steps(pace, model, toy_data())
    pace.close()
    assert (pace.rank, pace.workers, pace.steps) == (0, 1, steps)
    assert_same(model, plain(OPTIMIZERS[optimizer]))


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [("asp", {}), ("decoupled", {"h": 1, "fragments": 1, "tau": 0}), ("tiers", {"outer": "bsp"})],
)
def test_a_model_that_diverges_ends_the_loop_with_the_reason_and_not_with_a_lost_server(
    scheme: str, parameters: dict[str, Any]
) -> None:
    model = toy_model()
    pace = paceline.join(model, OPTIMIZERS["sgd"](model), scheme=scheme, **parameters)
    with pytest.raises(Diverged, match="the model has diverged: server 0 refused the last 8 contributions"), pace:
        for x, _ in pace.batches(toy_data(), 8, epochs=2):
            (model(x).sum() * float("nan")).backward()
            pace.step()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [("diloco", {"h": 8}), ("asyncdiloco", {"h": 8}), ("decoupled", {"h": 8, "fragments": 1, "tau": 0})],
)
def test_with_an_outer_step_that_takes_the_workers_model_it_is_the_plain_loop(
    scheme: str, parameters: dict[str, int], optimizer: str
) -> None:
    model = toy_model()
    outer = {"outer_lr": 1.0, "outer_momentum": 0.0}
    with paceline.join(model, OPTIMIZERS[optimizer](model), scheme=scheme, **parameters, **outer) as pace:
        plain_steps(pace, model, toy_data())
    assert_same(model, plain(OPTIMIZERS[optimizer]))


STEADY: dict[str, MakeOptimizer] = {
    **OPTIMIZERS,
    # At 0.1 the plain loop itself ends at 0.088, 0.136 or 0.094 after 19, 20 or 21 epochs; here its loss falls.
    "nesterov": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
}


@pytest.mark.parametrize("optimizer", STEADY)
@pytest.mark.parametrize("scheme", ["diloco", "asyncdiloco", "decoupled"])
def test_alone_an_outer_optimizer_learns_no_worse_than_the_plain_loop(scheme: str, optimizer: str) -> None:
    model, other, epochs = toy_model(), toy_model(), 20
    with paceline.join(model, STEADY[optimizer](model), scheme=scheme) as pace:
        plain_steps(pace, model, toy_data(), epochs=epochs)
    inner = STEADY[optimizer](other)
    for x, y in batches(epochs):
        inner.zero_grad()
        nn.functional.cross_entropy(other(x), y).backward()
        inner.step()
    x, y = toy_data().tensors
    assert nn.functional.cross_entropy(model(x), y) < nn.functional.cross_entropy(other(x), y)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_a_learning_rate_scheduler_of_the_users_own_is_followed(scheme: str) -> None:
    model = toy_model()
    optimizer = OPTIMIZERS["sgd"](model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    with paceline.join(model, optimizer, scheme=scheme) as pace, warnings.catch_warnings():
        # Where the servers update, the optimizer itself never steps, and torch warns of that.
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
        for x, y in pace.batches(toy_data(), 8, epochs=2):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            scheduler.step()
    assert_same(model, plain(OPTIMIZERS["sgd"], gamma=0.8))


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_clearing_the_gradients_oneself_does_no_harm(scheme: str, set_to_none: bool) -> None:
    model = toy_model()
    optimizer = OPTIMIZERS["nesterov"](model)
    with paceline.join(model, optimizer, scheme=scheme) as pace:
        for x, y in pace.batches(toy_data(), 8, epochs=2):
            optimizer.zero_grad(set_to_none=set_to_none)
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
    assert_same(model, plain(OPTIMIZERS["nesterov"]))


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_a_gradient_put_in_its_place_counts(scheme: str) -> None:
    """Clipping by hand, say, or a gradient from somewhere else."""
    model, other = toy_model(), toy_model()
    with paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.5), scheme=scheme) as pace:
        for x, y in pace.batches(toy_data(), 8, epochs=1):
            nn.functional.cross_entropy(model(x), y).backward()
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            pace.step()
    with torch.no_grad():
        for q in other.parameters():
            q -= 0.5 * pace.steps
    assert_same(model, other)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_gradients_clipped_in_place_count(scheme: str) -> None:
    model, other = toy_model(), toy_model()
    with paceline.join(model, OPTIMIZERS["sgd"](model), scheme=scheme) as pace:
        for x, y in pace.batches(toy_data(), 8, epochs=2):
            nn.functional.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            pace.step()
    optimizer = OPTIMIZERS["sgd"](other)
    for x, y in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(other(x), y).backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        optimizer.step()
    assert_same(model, other)


def test_an_error_in_the_loop_comes_through_as_it_is() -> None:
    model = toy_model()
    pace = paceline.join(model, OPTIMIZERS["sgd"](model), scheme="asp")

    def loop() -> None:
        with pace:
            next(pace.batches(toy_data(), 8))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert pace.over
    pace.step()  # as harmless as after any other end


def test_closing_twice_and_stepping_afterwards_are_harmless() -> None:
    model = toy_model()
    pace = paceline.join(model, OPTIMIZERS["sgd"](model), scheme="asp")
    plain_steps(pace, model, toy_data(), epochs=1)
    pace.close()
    pace.close()
    before = [p.clone() for p in model.parameters()]
    pace.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert list(pace.batches(toy_data(), 8)) == []


def test_the_model_is_the_users_own_afterwards() -> None:
    model = toy_model()
    with paceline.join(model, OPTIMIZERS["sgd"](model), scheme="bsp") as pace:
        plain_steps(pace, model, toy_data())
    optimizer = torch.optim.Adam(model.parameters())
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    nn.functional.cross_entropy(model(toy_data().tensors[0]), toy_data().tensors[1]).backward()
    optimizer.step()
    assert not torch.equal(before, nn.utils.parameters_to_vector(model.parameters()))
    toy_model().load_state_dict(model.state_dict())


@pytest.mark.parametrize(
    ("scheme", "parameters", "words"),
    [
        ("eysnc", {}, "did you mean 'esync'"),
        ("ssp", {"stalness": 3}, "did you mean 'staleness'"),
        ("ssp", {"staleness": -1}, "between 0 and"),
        ("ssp", {"staleness": "3"}, "must be int"),
    ],
)
def test_a_wrong_scheme_or_parameter_is_refused_at_once(scheme: str, parameters: dict[str, int], words: str) -> None:
    model = toy_model()
    with pytest.raises(ConfigError, match=words):
        paceline.join(model, OPTIMIZERS["sgd"](model), scheme=scheme, **parameters)


@pytest.mark.parametrize("which", ["codec", "codec_down"])
def test_a_codec_that_there_is_not_is_refused_at_once(which: str) -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ConfigError, match="unknown codec 'topq'; did you mean 'topk'"):
        paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="asp", **{which: "topq"})


def test_an_optimizer_that_takes_more_than_a_gradient_is_refused_with_the_way_out() -> None:
    model = toy_model()
    with pytest.raises(ConfigError, match="LBFGS evaluates the model several times: take a scheme with local steps"):
        paceline.join(model, torch.optim.LBFGS(model.parameters()), scheme="bsp")


class Wrapper(torch.optim.Optimizer):
    """As Accelerate makes them: an Optimizer by its class, and otherwise what is inside."""

    def __init__(self, inside: torch.optim.Optimizer) -> None:
        self.inside = inside

    def __getattr__(self, name: str) -> Any:
        if name in ("param_groups", "defaults", "state"):
            return getattr(self.__dict__["inside"], name)
        raise AttributeError(name)


def test_an_optimizer_that_something_has_wrapped_is_refused_and_the_line_says_what_to_wrap() -> None:
    model = toy_model()
    wrapper = Wrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ConfigError, match=r"Wrapper is a wrapper around an optimizer.* and wrap pace\.optimizer"):
        paceline.join(model, wrapper)
