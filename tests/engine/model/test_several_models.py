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


def split(model: torch.nn.Module, second: Any = None) -> list[torch.optim.Optimizer]:
    """Matrices by one rule, the rest by another."""
    parameters = list(model.parameters())
    matrices = [p for p in parameters if p.ndim == 2]
    rest = [p for p in parameters if p.ndim != 2]
    second = second or (lambda ps: torch.optim.AdamW(ps, lr=0.01))
    return [torch.optim.SGD(matrices, lr=0.1, momentum=0.9), second(rest)]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["bsp", "esync", "localsgd"])
@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("by_frameworks", [False, True])
def test_several_optimizers_of_one_model_make_the_steps_of_the_plain_loop(
    scheme: str, by_name: bool, by_frameworks: bool
) -> None:
    model, plain = models()["D"], models()["D"]
    given: Any = split(model)
    optimizers, width = split(plain), next(plain.parameters()).shape[1]
    x = torch.randn(6, 8, width, generator=torch.Generator().manual_seed(3))
    with paceline.join(model, {"a": given[0], "b": given[1]} if by_name else given, scheme=scheme) as pace:
        for batch in x:
            model(batch).square().mean().backward()
            if by_frameworks:
                for each in pace.optimizers.values():
                    each.step()
            else:
                pace.step(8)
            plain(batch).square().mean().backward()
            for each in optimizers:
                each.step()
                each.zero_grad()
    for p, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, wanted)
    assert pace.total_samples == 48


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda m: [torch.optim.SGD(m.parameters(), 0.1)] * 2, "a parameter is in the optimizers 0 and 1"),
        (lambda m: [torch.optim.SGD(m.parameters(), 0.1), "my:make"], "give optimizers themselves"),
        (lambda m: [], "no optimizer of the model holds a parameter"),
    ],
)
def test_optimizers_of_one_model_that_do_not_go_together_are_refused(given: Any, words: str) -> None:
    model = models()["D"]
    with pytest.raises(ConfigError, match=words):
        paceline.join(model, given(model), scheme="bsp")
