"""What an exchange does to the memory of an optimizer that is part of the worker's box: `adpsgd`, `sgp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import Compute, Computed, Start, Tell
from paceline.core.errors import ConfigError
from paceline.core.local.push_sum import Share
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.schemes.adpsgd import Average, ExchangeDeclined, Moved
from paceline.sim import LocalSteps, Simulation

RECIPES = [OptimizerRecipe(lr=0.1, momentum=0.9), OptimizerRecipe(name="adam", lr=0.1)]
X, G = torch.tensor([4.0, -2.0]), [torch.tensor([1.0, 3.0]) * (n + 1) for n in range(5)]


def worker(name: str, recipe: OptimizerRecipe, me: int, **parameters: Any) -> Any:
    scheme = make(name, parameters)
    place = RoleContext(me=me, workers=(0, 1), w=Flat.copy_of(X), update=make_rule(recipe))
    return scheme.worker(0)(scheme, place)


def computed(n: int) -> Computed:
    return Computed(Flat.copy_of(G[n]), 1, 1.0)


class ByTorch:
    """Plain torch.optim on one parameter, which somebody else may move."""

    def __init__(self, recipe: OptimizerRecipe) -> None:
        self.x = torch.nn.Parameter(X.clone())
        self.optimizer: torch.optim.Optimizer
        if recipe.name == "adam":
            self.optimizer = torch.optim.Adam([self.x], lr=recipe.lr)
        else:
            self.optimizer = torch.optim.SGD([self.x], lr=recipe.lr, momentum=recipe.momentum)

    def step(self, n: int) -> None:
        self.x.grad = G[n].clone()
        self.optimizer.step()

    def exchange(self, x: torch.Tensor, memory: str) -> None:
        self.x.data = x.clone()
        if memory == "reset":
            self.optimizer.state.clear()


def same(w: Any, expected: ByTorch) -> None:
    torch.testing.assert_close(w.value(), expected.x.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("memory", ["keep", "reset"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_an_averaging_resets_the_passive_side_for_the_gradient_under_way(recipe: OptimizerRecipe, memory: str) -> None:
    role, plain = worker("adpsgd", recipe, me=1, memory=memory), ByTorch(recipe)
    loop = role.run()
    assert isinstance(next(loop), Compute)
    for n in range(2):
        loop.send(computed(n))
        plain.step(n)
    theirs = torch.tensor([8.0, 8.0])
    list(role.on(0.0, 0, Average(x=Flat.copy_of(theirs), weight=1.0)))
    plain.exchange((plain.x.detach() + theirs) / 2, memory)
    for n in range(2, 5):  # once: it then remembers again
        loop.send(computed(n))
        plain.step(n)
        same(role.w, plain)


def active(recipe: OptimizerRecipe, memory: str) -> tuple[Any, ByTorch, Any]:
    """The side that asks, the same by torch, and its loop: it has asked, and computes."""
    role = worker("adpsgd", recipe, me=0, memory=memory)
    loop = role.run()
    assert isinstance(next(loop), Tell)
    assert isinstance(loop.send(None), Compute)
    return role, ByTorch(recipe), loop


@pytest.mark.parametrize("memory", ["keep", "reset"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_an_averaging_resets_the_active_side_when_it_hears_of_it(recipe: OptimizerRecipe, memory: str) -> None:
    role, plain, loop = active(recipe, memory)
    for n in range(2):  # what it has asked for is under way
        loop.send(computed(n))
        plain.step(n)
    same(role.w, plain)
    d = torch.tensor([1.0, -1.0])
    list(role.on(0.0, 1, Moved(d=Flat.copy_of(d))))
    plain.exchange(plain.x.detach() - d, memory)
    assert isinstance(loop.send(computed(2)), Tell), "and it asks anew, which changes nothing of its own"
    plain.step(2)
    same(role.w, plain)
    loop.send(None)
    loop.send(computed(3))
    plain.step(3)
    same(role.w, plain)


def test_an_averaging_that_is_declined_is_none() -> None:
    role, plain, loop = active(RECIPES[0], "reset")
    loop.send(computed(0))
    list(role.on(0.0, 1, ExchangeDeclined()))
    loop.send(computed(1))
    plain.step(0)
    plain.step(1)
    same(role.w, plain)


@pytest.mark.parametrize("memory", ["keep", "reset"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_shares_reset_it_once_and_not_at_every_step_in_between(recipe: OptimizerRecipe, memory: str) -> None:
    """tau = 3, two workers: what is there of round 0 is taken in at its end, after three steps."""
    role, plain = worker("sgp", recipe, me=0, tau=3, memory=memory), ByTorch(recipe)
    loop = role.run()
    effect = next(loop)
    theirs = torch.tensor([8.0, 8.0])
    list(role.on(0.0, 1, Share(w=Flat.copy_of(theirs), weight=0.5, round=0)))
    steps = 0
    while steps < 5 or not isinstance(effect, Compute):
        if isinstance(effect, Compute):
            if steps:
                same(role.w, plain)
            effect = loop.send(computed(steps % 5))
            plain.step(steps % 5)
            steps += 1
            if steps == 3:  # given half away; nothing is waited for in the first round
                assert role.weight == 0.5
                plain.exchange((plain.x.detach() * 0.5 + theirs * 0.5), memory)
        else:
            assert isinstance(effect, Tell | Start)
            effect = loop.send(None)
    same(role.w, plain)


@pytest.mark.parametrize("recipe", RECIPES[:1], ids=lambda recipe: recipe.name)
def test_a_share_after_every_step_leaves_no_momentum(recipe: OptimizerRecipe) -> None:
    """Under SGP with tau 0 all take something in after every step, so reset is plain SGD, to the last bit."""

    def model(momentum: float, memory: str) -> list[float]:
        return trained("sgp", momentum, memory=memory)

    assert model(0.9, "reset") == model(0.0, "keep")
    assert model(0.9, "keep") != model(0.0, "keep")


def trained(name: str, momentum: float, seed: int = 3, **parameters: Any) -> list[float]:
    """After 20 virtual seconds of four workers, each of which pulls the model to its own rank."""
    work = LocalSteps(lambda rank, rng: rng.uniform(0.5, 1.5), lambda rank, w: w - rank)
    recipe = OptimizerRecipe(lr=0.02, momentum=momentum)
    sim = Simulation(
        make(name, parameters),
        np.zeros(2),
        work,
        workers=4,
        servers=0,
        seed=seed,
        update_factory=lambda length: make_rule(recipe),
    )
    sim.run(until=20)
    return [float(x) for rank in range(4) for x in sim.worker(rank).w]


@pytest.mark.parametrize(
    ("name", "parameters"), [("adpsgd", {}), ("adpsgd", {"topology": "complete"}), ("sgp", {"tau": 2})]
)
def test_the_same_seed_gives_the_same_run_and_the_choice_another_one(name: str, parameters: dict[str, Any]) -> None:
    keep, reset = (trained(name, 0.9, **parameters, memory=memory) for memory in ("keep", "reset"))
    assert trained(name, 0.9, **parameters, memory="reset") == reset
    assert trained(name, 0.9, **parameters) == keep, "the default"
    assert keep != reset
    plain = (trained(name, 0.0, **parameters, memory=memory) for memory in ("keep", "reset"))
    assert next(plain) == next(plain), "what remembers nothing has nothing to lose"


def test_what_each_worker_remembers_of_gossip_does_not_part_the_model_of_a_phase_after_it() -> None:
    """Momenta that differ would make four models of one, for ever."""
    w = trained("hybrid", 0.9, phases="adpsgd until 10 steps; bsp")
    assert len(set(w)) == 1
    assert w != trained("hybrid", 0.0, phases="adpsgd until 10 steps; bsp"), "and bsp has a momentum"


@pytest.mark.parametrize("name", ["adpsgd", "sgp"])
def test_what_they_cannot_do_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.memory = 'average': must be one of keep, reset"):
        make(name, {"memory": "average"})
