"""Trial passes and models that are built at the same time, in threads of one process."""

from __future__ import annotations

import threading

import torch
from torch import Tensor, nn

from paceline.engine.model.trial_pass import unchanged
from paceline.engine.models import build
from paceline.engine.specs import ModelRecipe


def weights_of_a_new_model() -> list[Tensor]:
    return list(build(ModelRecipe(), (1, 8, 8), 10, seed=3).state_dict().values())


def test_a_model_that_is_built_beside_trial_passes_has_the_weights_of_its_seed() -> None:
    """The end of the trial puts torch's one generator back, which must not happen while weights are drawn from it."""
    built: list[list[Tensor]] = []
    builder = threading.Thread(target=lambda: built.append(weights_of_a_new_model()))
    with unchanged(nn.Linear(2, 2)):
        builder.start()
        builder.join(0.2)
        assert builder.is_alive(), "it waits for the end of the trial"
        torch.rand(5)
    builder.join(30.0)
    assert not builder.is_alive()
    assert all(map(torch.equal, built[0], weights_of_a_new_model()))
