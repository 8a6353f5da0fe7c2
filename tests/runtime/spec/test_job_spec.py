import pytest
import torch

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.runtime.spec.job_spec import Recipe


def moved_by(scheme: str, steps: int = 3) -> float:
    """How far so many updates with a gradient of 1 go."""
    rule = Recipe(scheme=scheme, optimizer=OptimizerRecipe(name="sgd", lr=0.1, momentum=0.5)).make_rule()
    w, g = Flat.copy_of(torch.zeros(2)), Flat.copy_of(torch.ones(2))
    for _ in range(steps):
        w = rule(w, g, 1)
    return -float(w.value()[0])


def test_a_scheme_with_a_momentum_of_its_own_gets_a_rule_without() -> None:
    assert moved_by("eamsgd") == pytest.approx(0.1 * 3)
    assert moved_by("bsp") == pytest.approx(0.1 * (1 + 1.5 + 1.75))
