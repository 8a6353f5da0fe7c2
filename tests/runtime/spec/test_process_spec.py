"""A setting is declared once: its flags, its TOML key, its JSON and its variable derive from that declaration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline import config as configuration
from paceline.checkpoint.redis_url import NO_SECRETS
from paceline.cli.commands import launch, train
from paceline.cli.support.options import config_of
from paceline.config import SECTIONS, Config
from paceline.config.sections import ClusterSettings, option
from paceline.core.coordination import party
from paceline.launch.local.environment import environment_of, spec_from
from paceline.runtime.spec.process_spec import ProcessSpec, make_specs


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended(ClusterSettings):
    """The section with one more setting, declared as any other is."""

    patience: float = option(1.5, "a setting that this test adds", launch=True, variable=True, low=0)


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECTIONS, "cluster", Extended)


def patience_of(config: Config) -> float:
    assert isinstance(config.cluster, Extended)
    return config.cluster.patience


def specs_of(config: Config) -> dict[party.Party, ProcessSpec]:
    return make_specs(
        config, "127.0.0.1:5", "token", "", credentials="", resume="", evaluator=True, store_secrets=NO_SECRETS
    )


@pytest.mark.usefixtures("extended")
def test_a_new_setting_is_a_flag_of_train_and_of_launch_and_a_key_of_the_configuration(tmp_path: Path) -> None:
    of_train = config_of(train.parse(["--patience", "2.5"]))
    options = launch._parser().parse_all(["--patience", "3.5", "python", "mine.py"])
    of_launch = configuration.build(launch._values(options, None, ()))
    assert (patience_of(of_train), patience_of(of_launch)) == (2.5, 3.5)
    assert launch._settings_given(options) == ["--patience", "3.5"]
    configuration.save(of_train, tmp_path / "config.toml")
    assert patience_of(configuration.build(configuration.load(tmp_path / "config.toml"))) == 2.5
    assert patience_of(configuration.build({})) == 1.5


@pytest.mark.usefixtures("extended")
def test_a_new_setting_reaches_every_process_however_it_is_started(tmp_path: Path) -> None:
    """Our own processes and those on other hosts get JSON, scripts of the user's their environment."""
    (tmp_path / "token").write_text("token")
    specs = specs_of(configuration.build({"cluster": {"patience": 2.5, "workers": 2, "servers": 1}}))
    assert [str(who) for who in specs] == ["server 0", "worker 0", "worker 1", "evaluator"]
    for spec in specs.values():
        assert patience_of(ProcessSpec.from_json(spec.to_json()).config) == 2.5
    environment = environment_of(specs[party.worker(1)], tmp_path / "token")
    assert environment["PACELINE_PATIENCE"] == "2.5"
    of_script = spec_from(environment)
    assert of_script is not None
    assert patience_of(of_script.config) == 2.5


def test_a_setting_that_is_no_variable_stays_out_of_the_environment(tmp_path: Path) -> None:
    specs = specs_of(configuration.build({"cluster": {"streams": 3}}))
    assert ProcessSpec.from_json(specs[party.worker(0)].to_json()).config.cluster.streams == 3
    assert "PACELINE_STREAMS" not in environment_of(specs[party.worker(0)], tmp_path / "token")


def test_a_specification_comes_back_from_json_as_it_was() -> None:
    out = "runs/\udcff"  # the name of a folder that is no UTF-8
    config = configuration.build(
        {
            "run": {"scheme": "ssp", "out": out},
            "ssp": {"staleness": 7},
            "cluster": {"slowdown": [1, 2, 4, 8], "step_ms": 5.0},
        }
    )
    for spec in specs_of(config).values():
        again = ProcessSpec.from_json(spec.to_json())
        assert again.to_json() == spec.to_json()
        assert (again.who, again.step_seconds, again.config.run) == (spec.who, spec.step_seconds, config.run)
        assert again.config.scheme() == config.scheme()


def test_where_workers_come_late_means_go_through_servers() -> None:
    specs = specs_of(configuration.build({"cluster": {"initial_workers": 2, "allreduce": "auto"}}))
    assert {spec.allreduce for spec in specs.values()} == {"servers"}
