"""The rate of updates: that of the plain loop, by how much of a round of all workers an update is."""

from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.core.scheme import make, names
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.rate_scale import rate_note, with_rate
from paceline.runtime.worker.steps.local_work import LocalWork
from tests.runtime.simulated import virtual_runs

ON_ARRIVAL = ["asp", "dcasgd", "dssp", "partial", "ssp", "weedout"]


def scaled(scheme: str, workers: int = 16, lr_scale: str = "auto", optimizer: str = "sgd", **parameters: Any) -> Recipe:
    recipe = Recipe(scheme=scheme, parameters=parameters, optimizer=OptimizerRecipe(name=optimizer, lr=0.1))
    return with_rate(recipe, workers, lr_scale)


def moved_by(recipe: Recipe) -> float:
    """How far an update with a gradient of 1 goes."""
    w, g = Flat.copy_of(torch.zeros(2)), Flat.copy_of(torch.ones(2))
    return -float(recipe.make_rule()(w, g, 1).value()[0])


@pytest.mark.parametrize("scheme", ON_ARRIVAL)
def test_n_updates_of_one_contribution_each_go_as_far_as_one_update_of_bsp(scheme: str) -> None:
    assert moved_by(scaled(scheme)) * 16 == pytest.approx(moved_by(scaled("bsp"))) == pytest.approx(0.1)
    assert moved_by(scaled(scheme, optimizer="adam")) * 16 == pytest.approx(moved_by(scaled("bsp", optimizer="adam")))


@pytest.mark.parametrize("scheme", names())
def test_a_run_of_one_worker_is_never_scaled(scheme: str) -> None:
    assert set(scaled(scheme, workers=1).rate_factors) == {1.0}
    assert set(scaled(scheme, workers=1, lr_scale="0.5").rate_factors) == {1.0}


@pytest.mark.parametrize("scheme", sorted({*names()} - {*ON_ARRIVAL}))
def test_the_other_schemes_have_the_rate_as_given(scheme: str) -> None:
    recipe = scaled(scheme)
    assert set(recipe.rate_factors) == {1.0}
    assert rate_note(recipe) == ""


@pytest.mark.parametrize(
    ("scheme", "parameters", "factor"),
    [
        ("asp", {"weighting": "inverse"}, 1.0),  # each gradient counts 1/Y already
        ("asp", {"weighting": "power:0.5"}, 0.25),
        ("asp", {"weighting": "power:2"}, 1.0),
        ("asp", {"payload": "delta"}, 1.0),  # local steps
        ("gsp", {"weighting": "none", "groups": "0-7;8-15"}, 0.5),
        ("gsp", {"weighting": "none"}, 1 / 16),
        ("ksync", {"late": "fold", "k": 4}, 0.25),
        ("ksync", {"k": 4}, 1.0),
        ("tiers", {"inner": "bsp", "outer": "asp"}, 0.5),
        ("tiers", {"inner": "asp", "outer": "asyncdiloco"}, 1 / 8),
    ],
)
def test_the_factor_follows_from_what_an_update_is_made_of(
    scheme: str, parameters: dict[str, Any], factor: float
) -> None:
    assert scaled(scheme, **parameters).rate_factors == (pytest.approx(factor),)


def test_each_phase_has_the_rate_of_its_scheme() -> None:
    recipe = scaled("hybrid", phases="bsp until 2 steps; asp")
    assert recipe.rate_factors == (1.0, 1 / 16)
    rule = recipe.make_rule()
    w, g = Flat.copy_of(torch.zeros(2)), Flat.copy_of(torch.ones(2))
    assert -float(rule(w, g, 1).value()[0]) == pytest.approx(0.1)
    rule.enter_phase(1)
    assert -float(rule(w, g, 1).value()[0]) == pytest.approx(0.1 / 16)


def test_the_user_may_choose_the_factor_or_none() -> None:
    assert scaled("asp", lr_scale="none").rate_factors == (1.0,)
    assert moved_by(scaled("asp", lr_scale="0.5")) == pytest.approx(0.05)
    assert moved_by(scaled("bsp", lr_scale="2")) == pytest.approx(0.2)
    for bad in ("half", "0", "-1", "inf", "nan"):
        with pytest.raises(ConfigError, match="auto, none or a positive number"):
            scaled("asp", lr_scale=bad)


def test_a_line_says_by_what_the_rate_is_multiplied_and_how_to_have_it_as_given() -> None:
    assert rate_note(scaled("asp")) == (
        "asp makes 16 updates where bsp makes one: the rate 0.1 is multiplied by 0.0625, which is 0.00625 "
        "(--lr-scale none: as given)"
    )
    assert "0.5" in rate_note(scaled("asp", lr_scale="0.5"))
    assert rate_note(scaled("asp", lr_scale="none")) == ""


def test_workers_with_other_factors_have_another_recipe() -> None:
    assert scaled("asp").digest() != scaled("asp", lr_scale="none").digest()
    assert Recipe.from_json(scaled("asp").to_json()) == scaled("asp")


def test_a_rate_that_is_changed_during_the_run_is_multiplied_too() -> None:
    recipe = scaled("asp")
    rule = recipe.make_rule()
    rule.follow(recipe.of_rule(OptimizerRecipe(name="sgd", lr=0.2)))
    w, g = Flat.copy_of(torch.zeros(2)), Flat.copy_of(torch.ones(2))
    assert -float(rule(w, g, 1).value()[0]) == pytest.approx(0.2 / 16)
    assert rule.state()["lr"] == 0.2  # checkpoints have the user's


@pytest.mark.parametrize("scheme", [*ON_ARRIVAL, "gsp", "bsp"])
def test_sixteen_workers_learn_as_well_as_under_bsp(scheme: str) -> None:
    """Without the factor six of these lose 30 to 70 points, or diverge."""
    loss = {name: sixteen_workers(name) for name in (scheme, "bsp")}
    assert loss[scheme] < 1.05 * loss["bsp"]


def sixteen_workers(scheme: str) -> float:
    summary = virtual_runs.run(
        scheme,
        on={"workers": 16, "slowdown": [1 + rank / 5 for rank in range(16)]},
        stop={"epochs": 6.0},
        optimizer={"lr": 0.15},
        model={"name": "mlp"},
    )
    assert summary.test_loss is not None
    return summary.test_loss


def test_schemes_say_what_they_do_in_words() -> None:
    for name in names():
        share, why = make(name, {}).rate_share(8)
        assert (share == 1) == (why == "")


def test_the_optimizer_of_the_user_steps_at_that_rate_and_keeps_its_own() -> None:
    module = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    rule = LocalWork(FlatModel(module), scaled("bsp", lr_scale="0.5"), optimizer).rule()
    w, g = Flat.copy_of(torch.zeros(2)), Flat.copy_of(torch.ones(2))
    assert -float(rule(w, g, 1).value()[0]) == pytest.approx(0.05)
    assert optimizer.param_groups[0]["lr"] == 0.1
