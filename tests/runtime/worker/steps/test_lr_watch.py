"""Numbers of parameter groups that a scheduler changes reach the servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.core.coordination.party import worker
from paceline.core.trace import Decided, Record
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.specs import OptimizerRecipe
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.steps.lr_watch import LrFollower, LrWatcher, heard, median_of, rate_of
from tests.engine.optim.grouped import by_rate
from tests.runtime.own_loops import toy_model


def test_numbers_of_groups_arrive_as_they_were_told() -> None:
    model = toy_model()
    optimizer = by_rate(model.parameters())
    recipe = recipe_of(optimizer, trained_of(model, optimizer))
    followed = LrWatcher(optimizer, recipe)
    assert followed.changed() is None
    optimizer.param_groups[1]["lr"] = 0.03125
    changed = followed.changed()
    assert changed is not None
    assert followed.changed() is None
    assert heard(recipe, rate_of(changed)) == changed
    assert changed.groups[1].optimizer.lr == 0.03125
    assert median_of([recipe, changed, changed]) == changed
    one = recipe_of(torch.optim.SGD(model.parameters(), lr=0.1))
    assert heard(one, rate_of(changed)) == one, "of another optimizer"


class Told:
    """A session and a rule that note what they are told."""

    def __init__(self) -> None:
        self.rate_factor = 1.0
        self.rates: list[Any] = []
        self.records: list[Record] = []
        self.recipes: list[OptimizerRecipe] = []
        self.node = SimpleNamespace(me=worker(2), now=lambda: 7.0)
        self.reports = SimpleNamespace(note=self.records.append)

    def tell_rate(self, servers: int, rate: Any) -> None:
        self.rates.append(rate)

    def follow(self, recipe: OptimizerRecipe) -> None:
        self.recipes.append(recipe)


@pytest.mark.parametrize("given", [True, False])
def test_a_factor_of_the_operator_reaches_servers_rule_and_local_steps_once(given: bool) -> None:
    optimizer = torch.optim.SGD(toy_model().parameters(), lr=0.5, momentum=0.9) if given else None
    recipe = Recipe(scheme="bsp", optimizer=OptimizerRecipe(name="sgd", lr=0.5, momentum=0.9))
    told, local = Told(), list[float]()
    follower = LrFollower(optimizer, recipe, told, 1, warns=True, scale_local=local.append)  # type: ignore[arg-type]
    follower.follow(told)
    assert told.rates == []
    told.rate_factor = 0.5
    for _ in range(3):
        follower.follow(told)
    told.rate_factor = 2.0
    follower.follow(told)
    assert [rate.lr for rate in told.rates] == [recipe.lr for recipe in told.recipes] == [0.25, 1.0]
    assert local == [0.5, 4.0]
    if optimizer is not None:
        assert optimizer.param_groups[0]["lr"] == 1.0
    assert [(r.at, r.party, r.verdict) for r in told.records if isinstance(r, Decided)] == [
        (7.0, "worker 2", "learning rate")
    ] * 2


def test_groups_keep_their_proportions(capsys: pytest.CaptureFixture[str]) -> None:
    model = toy_model()
    optimizer = by_rate(model.parameters())
    rates = [group["lr"] for group in optimizer.param_groups]
    followed = LrWatcher(optimizer, recipe_of(optimizer, trained_of(model, optimizer)))
    changed = followed.scale(0.5)
    assert [group.optimizer.lr for group in changed.groups] == [rate / 2 for rate in rates]
    assert followed.changed() is None, "it is no change of the user's"
    assert followed.changes == 0
