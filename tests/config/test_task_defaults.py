"""What a task needs is filled in where nobody said otherwise, and a race has an end."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.config import Config, build, race_end, to_dict
from tests.config.settings import refusal

Values = dict[str, dict[str, Any]]

TEXT = {"data": {"name": "text"}}
GPT = {"model": {"name": "gpt"}}


def seen(config: Config) -> tuple[Any, ...]:
    optimizer, stop = config.optimizer, config.stop
    return config.data.name, config.model.name, optimizer.name, optimizer.lr, config.data.batch_size, stop.epochs


@pytest.mark.parametrize("values", [TEXT, GPT, {**TEXT, **GPT}])
def test_a_language_model_has_defaults_of_its_own(values: Values) -> None:
    assert seen(build(values)) == ("text", "gpt", "adamw", 0.005, 8, 1.0)


def test_what_was_given_wins() -> None:
    given = {**TEXT, "model": {"name": "lstm"}, "optimizer": {"lr": 0.1}, "stop": {"seconds": 9.0}}
    assert seen(build(given)) == ("text", "lstm", "adamw", 0.1, 8, 20.0)
    assert seen(build({**GPT, "optimizer": {"momentum": 0.9}}))[2:4] == ("sgd", 0.15)
    assert seen(build({**GPT, "optimizer": {"name": "lars"}}))[2:4] == ("lars", 0.15)
    assert seen(build({**GPT, "run": {"scheme": "muloco"}}))[2:4] == ("muon", 0.03)
    own = {"data": {"name": "a.py:load", "batch_size": 4}, **GPT}
    assert seen(build(own)) == ("a.py:load", "gpt", "sgd", 0.15, 4, 20.0)


def test_a_saved_configuration_has_them_and_needs_them_no_more() -> None:
    config = build({**GPT, "cluster": {"slowdown": [1, 1, 2, 8]}})
    assert to_dict(build(to_dict(config))) == to_dict(config)
    assert to_dict(config)["optimizer"]["lr"] == 0.005


def test_other_tasks_and_scripts_have_the_defaults_of_the_sections() -> None:
    assert build({}) == Config()
    script = {"run": {"script": "python x.py"}, "stop": {"until_stopped": True}}
    assert build({**script, **TEXT}).optimizer == Config().optimizer


@pytest.mark.parametrize(("network", "step_ms"), [("mlp", 20.0), ("lenet", 20.0), ("gpt", 100.0)])
def test_a_slowdown_alone_takes_a_known_duration_of_steps(network: str, step_ms: float) -> None:
    values = {"model": {"name": network}, "cluster": {"workers": 2, "slowdown": [1, 4]}}
    assert build(values).cluster.step_ms == step_ms
    assert build({"model": {"name": network}}).cluster.step_ms == 0.0
    asked = {**values, "cluster": {**values["cluster"], "step_ms": 7.0}}
    assert build(asked).cluster.step_ms == 7.0


@pytest.mark.parametrize(
    "values",
    [
        {"model": {"name": "resnet18"}},
        {"model": {"name": "my.py:Net"}},
        {"model": {"name": "gpt", "depth": 8}},
        {**GPT, "data": {"context": 256}},
        {"data": {"batch_size": 512}},
        {"run": {"script": "python x.py"}, "stop": {"until_stopped": True}},
    ],
)
def test_for_networks_of_other_sizes_somebody_has_to_say_it(values: Values) -> None:
    told = refusal(lambda: build({**values, "cluster": {"workers": 2, "slowdown": [1, 4]}}))
    assert "--slowdown multiplies --step-ms: give that too, e.g. --step-ms 20" in told


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ({}, "test accuracy 0.95 (--target-accuracy) or 20 epochs (--epochs)"),
        (TEXT, "test loss 3.2 (--target-loss) or 1 epoch (--epochs)"),
        (GPT, "test loss 3.2 (--target-loss) or 1 epoch (--epochs)"),
        ({"data": {"name": "synthetic"}}, "None"),
        ({"stop": {"seconds": 3.0}}, "None"),
        ({**TEXT, "stop": {"target_loss": 0.0}}, "None"),
        (to_dict(Config()), "None"),
    ],
)
def test_a_race_has_a_target_where_nobody_says_how_it_ends(values: Values, end: str) -> None:
    assert str(race_end(values)) == end
