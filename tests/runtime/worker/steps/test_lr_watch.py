"""Numbers of parameter groups that a scheduler changes reach the servers."""

from __future__ import annotations

import torch

from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.recipe import recipe_of
from paceline.runtime.worker.steps.lr_watch import LrWatcher, heard, median_of, rate_of
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
