"""Models and optimizers that do not go together are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline
from paceline.core.errors import ConfigError
from tests.runtime.worker.gan import (
    NOISE,
    X,
    adams,
    models,
    of_generator,
)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda of: (of, {"D": adams(of)["D"]}), "give one optimizer for each model, by the same names"),
        (lambda of: (of, adams(of)["D"]), "several models need an optimizer each"),
        (lambda of: (of, {"D": adams(of)["G"], "G": adams(of)["D"]}), "optimizer of D holds a parameter that is not"),
        (
            lambda of: ({"D": of["D"], "G": of["D"]}, {"D": adams(of)["D"], "G": adams(of)["D"]}),
            "optimizers of D and G",
        ),
        (lambda of: ({"a.b": of["D"]}, {"a.b": adams(of)["D"]}), "give them other names"),
        (lambda of: (of, {"D": "my:make", "G": "my:make"}), "give an optimizer itself"),
    ],
)
def test_models_and_optimizers_that_do_not_go_together_are_refused(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        paceline.join(*given(models()))


@pytest.mark.usefixtures("alone")
def test_a_model_that_is_not_there_and_a_gradient_that_is_gone_are_said() -> None:
    of = models()
    with paceline.join(of, adams(of), scheme="asp") as pace:
        with pytest.raises(ConfigError, match=r"pace.step\('d'\): the models of this run are 'D', 'G'"):
            pace.step("d", 9)
        of_generator(of, X[:9], NOISE[:9]).backward()
        pace.step("G", 9)
        with pytest.warns(UserWarning, match="a step clears those of all models; one step of all is pace.step"):
            pace.step("D", 9)
    model = models()["D"]
    with (
        paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as pace,
        pytest.raises(ConfigError, match="was given one model"),
    ):
        pace.step("D")
