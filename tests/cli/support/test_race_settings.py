"""A race without an end of its own gets the one of its data, and says so."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.cli.support.race_settings import configured, tell_defaults, with_race_end

Capture = pytest.CaptureFixture[str]

TEXT: dict[str, Any] = {"data": {"name": "text"}, "cluster": {"slowdown": [1, 1, 2, 8]}}


def told(values: dict[str, Any], capsys: Capture) -> list[str]:
    tell_defaults(values, configured(with_race_end(values), "bsp"))
    return capsys.readouterr().err.splitlines()


def test_each_run_has_the_same_end_and_a_scheme_of_its_own() -> None:
    values = with_race_end(TEXT)
    configs = [configured(values, name) for name in ("bsp", "diloco")]
    assert [config.run.scheme for config in configs] == ["bsp", "diloco"]
    assert configs[0].stop == configs[1].stop
    assert (configs[0].stop.target_loss, configs[0].stop.target_accuracy, configs[0].stop.epochs) == (3.2, 0.0, 1.0)
    assert "stop" not in TEXT  # what was given stays as it is


def test_an_end_that_was_given_stays() -> None:
    assert with_race_end({**TEXT, "stop": {"seconds": 5.0}})["stop"] == {"seconds": 5.0}


def test_defaults_are_told_before_the_first_run(capsys: Capture) -> None:
    assert told(TEXT, capsys) == [
        "each run ends at test loss 3.2 (--target-loss) or 1 epoch (--epochs): the default for text",
        "a step lasts 100 ms (--step-ms) times --slowdown: the default for gpt",
    ]
    assert told({"stop": {"epochs": 1.0}, "cluster": {"step_ms": 5.0}}, capsys) == []
