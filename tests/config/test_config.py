"""The configuration: what comes in comes out again, and whatever is wrong is told in one line that helps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline import config as configuration
from paceline.config import Config, Flag, build, load, save, scheme_settings, to_dict
from paceline.core.errors import ConfigError
from paceline.core.scheme import names

Values = dict[str, dict[str, Any]]
SETTINGS = list(configuration.settings())
BY_FLAG = {setting.flag: setting for setting in SETTINGS}


def refusal(call: Callable[[], object]) -> str:
    """The message of the ConfigError, which is one line that can stand alone."""
    with pytest.raises(ConfigError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert message
    return message


# ---- there and back -----------------------------------------------------------------------------------------


def test_the_defaults_are_a_configuration() -> None:
    assert build({}) == Config()
    assert build({}).check() == Config()


@pytest.mark.parametrize("scheme", names())
def test_what_was_written_out_builds_the_same_configuration(scheme: str) -> None:
    config = build({"run": {"scheme": scheme}, "cluster": {"workers": 2, "slowdown": [1, 2.5], "step_ms": 2.0}})
    again = build(to_dict(config))
    assert to_dict(again) == to_dict(config)
    assert again.scheme() == config.scheme()
    assert build(to_dict(again)) == again


def test_parameters_of_other_schemes_are_kept_too() -> None:
    config = build({"run": {"scheme": "bsp"}, "ssp": {"staleness": 7}, "gsp": {"ratio": 2}})
    assert config.parameters == {"ssp": {"staleness": 7}, "gsp": {"ratio": 2.0}}
    assert to_dict(build(to_dict(config))) == to_dict(config)


@st.composite
def _good_values(draw: st.DrawFn) -> Values:
    workers = draw(st.integers(1, 5))
    slowdown = draw(st.one_of(st.just([]), st.lists(st.floats(1, 9), min_size=workers, max_size=workers)))
    momentum = draw(st.floats(0.1, 0.99))
    return {
        "run": {"scheme": draw(st.sampled_from(names())), "seed": draw(st.integers(0, 2**40))},
        "cluster": {"workers": workers, "servers": draw(st.integers(1, 4)), "slowdown": slowdown, "step_ms": 5.0},
        "optimizer": {"lr": draw(st.floats(0, 10)), "momentum": momentum, "nesterov": draw(st.booleans())},
        "stop": {"epochs": draw(st.floats(0.5, 100)), "steps": draw(st.integers(0, 1000))},
        "ssp": {"staleness": draw(st.integers(0, 50))},
    }


@given(_good_values())
@settings(max_examples=40)
def test_a_saved_file_gives_the_same_configuration(tmp_path_factory: pytest.TempPathFactory, values: Values) -> None:
    path = tmp_path_factory.mktemp("config") / "config.toml"
    config = build(values)
    save(config, path)
    assert to_dict(build(load(path))) == to_dict(config)


def test_whole_numbers_will_do_where_numbers_are_wanted() -> None:
    config = build({"optimizer": {"lr": 1}, "cluster": {"workers": 2, "slowdown": [1, 2], "step_ms": 5}})
    assert config.optimizer.lr == 1.0
    assert isinstance(config.optimizer.lr, float)
    assert config.cluster.slowdown == (1.0, 2.0)


# ---- one flag and one sentence a setting ---------------------------------------------------------------------


def test_every_setting_has_a_flag_of_its_own_and_help() -> None:
    assert len(BY_FLAG) == len(SETTINGS)
    for setting in SETTINGS:
        assert len(setting.limits.help) > 3, setting.flag
        assert setting.flag == setting.flag.lower()
        assert "_" not in setting.flag


@pytest.mark.parametrize("scheme", names())
def test_every_parameter_of_every_scheme_can_be_set(scheme: str) -> None:
    from paceline.core.scheme import lookup

    fields = {field.name for field in dataclasses.fields(lookup(scheme))}
    assert {setting.key for setting in scheme_settings(scheme)} == fields
    for setting in scheme_settings(scheme):
        config = build({"run": {"scheme": scheme}, scheme: {setting.key: setting.default}})
        assert getattr(config.scheme(), setting.key) == setting.default


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.flag)
def test_every_default_passes_its_own_limits(setting: Flag) -> None:
    assert setting.check(setting.default) == setting.default


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.flag)
def test_the_default_written_on_a_command_line_is_the_default(setting: Flag) -> None:
    text = ",".join(map(str, setting.default)) if isinstance(setting.default, tuple) else str(setting.default)
    assert setting.parse(text) == setting.default


# ---- unknown things ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"clutser": {"workers": 2}}, "did you mean 'cluster'"),
        ({"zzzz": {}}, "there are: run, cluster"),
        ({"cluster": {"wrokers": 2}}, "unknown key 'wrokers' in [cluster]; did you mean 'workers'"),
        ({"run": {"scheme": "eysnc"}}, "did you mean 'esync'"),
        ({"run": {"scheme": "sps"}}, "did you mean"),
        ({"model": {"name": "lenett"}}, "did you mean 'lenet'"),
        ({"data": {"name": "mnsit"}}, "did you mean 'mnist'"),
        ({"data": {"partition": "unifrom"}}, "did you mean 'uniform'"),
        ({"optimizer": {"name": "adan"}}, "did you mean 'adam'"),
        ({"schedule": {"name": "cosin"}}, "did you mean 'cosine'"),
        ({"ssp": {"stalness": 3}}, "did you mean 'staleness'"),
        ({"bsp": {"staleness": 3}}, "unknown key 'staleness' in [bsp]"),
        ({"asp": {"weighting": "invers"}}, "inverse"),
        ({"workers": 4}, "workers = 4 stands outside a section; write it as workers below [cluster]"),
        ({"scheme": "asp"}, "scheme = 'asp' stands outside a section; write it as scheme below [run]"),
        ({"batch-size": 8}, "write it as batch_size below [data]"),
        ({"cluster": 4}, "outside a section"),
    ],
)
def test_what_is_unknown_is_refused_naming_the_nearest(values: Any, words: str) -> None:
    message = refusal(lambda: build(values))
    assert words in message, message


def test_what_there_is_to_choose_from_is_listed_once() -> None:
    assert refusal(lambda: build({"bsp": {"payload": "weights"}})).endswith("weights: must be one of gradient, delta")


# ---- types and limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("cluster", "workers", "four", "a whole number"),
        ("cluster", "workers", 2.5, "a whole number"),
        ("cluster", "workers", True, "a whole number"),
        ("cluster", "workers", 0, "between 1 and"),
        ("cluster", "servers", -1, "between 0 and"),
        ("cluster", "slowdown", [1, "two"], "numbers separated by commas"),
        ("cluster", "slowdown", 3, "numbers separated by commas"),
        ("cluster", "slowdown", [0.0], "between 0.001 and"),
        ("cluster", "device", "gpu", "there are auto, cpu, cuda and cuda:N"),
        ("cluster", "allreduce", "star", "auto, servers, ring, butterfly"),
        ("optimizer", "lr", "fast", "a number"),
        ("optimizer", "lr", math.nan, "a number"),
        ("optimizer", "lr", math.inf, "a number"),
        ("optimizer", "lr", 10**400, "a number"),
        ("optimizer", "lr", -0.1, "between 0 and"),
        ("run", "seed", 2**70, "between 0 and"),
        ("optimizer", "momentum", 1.5, "between 0 and 1"),
        ("optimizer", "nesterov", 1, "true or false"),
        ("stop", "target_accuracy", 80, "between 0 and 1"),
        ("run", "seed", -1, "between 0 and"),
        ("run", "out", 3, "a text"),
        ("run", "out", "a\0b", "a text"),
        ("ssp", "staleness", -1, "between 0 and"),
        ("ssp", "staleness", 1.5, "a whole number"),
        ("gsp", "groups", "0,1;1,2", "one group only"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_would(section: str, key: str, value: Any, words: str) -> None:
    message = refusal(lambda: build({section: {key: value}}))
    assert words in message, message
    assert key.replace("_", "-") in message, message


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("workers", "3", 3),
        ("lr", "1e-3", 0.001),
        ("slowdown", "1,1,2,8", (1.0, 1.0, 2.0, 8.0)),
        ("slowdown", "1, 2", (1.0, 2.0)),
        ("slowdown", "", ()),
        ("nesterov", "yes", True),
        ("nesterov", "False", False),
        ("partition", "fractions:1,2", "fractions:1,2"),
    ],
)
def test_a_flag_is_read_as_its_setting_is_typed(flag: str, text: str, value: Any) -> None:
    assert BY_FLAG[flag].parse(text) == value


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("workers", "3.0"), ("workers", ""), ("workers", "1_0_"), ("lr", "abc"), ("lr", "nan"), ("lr", "inf"),
        ("slowdown", "1,,2"), ("slowdown", "1;2"), ("slowdown", ","), ("nesterov", "perhaps"), ("model", "vgg"),
    ],
)  # fmt: skip
def test_a_flag_that_cannot_be_read_is_refused_by_name(flag: str, text: str) -> None:
    assert f"--{flag} " in refusal(lambda: BY_FLAG[flag].parse(text))


# ---- contradictions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cluster": {"workers": 3, "slowdown": [1, 2]}}, "--slowdown names 2 workers, --workers says 3"),
        ({"cluster": {"workers": 3, "slowdown": [2]}}, "--slowdown names 1 workers, --workers says 3"),
        ({"cluster": {"workers": 3, "device": "cpu,cpu"}}, "--device names 2 workers, --workers says 3"),
        ({"stop": {"epochs": 0}}, "nothing would end the run"),
        ({"optimizer": {"nesterov": True, "momentum": 0.0}}, "--nesterov needs --momentum"),
        ({"optimizer": {"name": "adam", "nesterov": True}}, "beta1"),
        ({"cluster": {"workers": 2, "slowdown": [1, 2]}}, "--step-ms"),
        ({"optimizer": {"name": "adam", "beta1": 1.0}}, "--beta1 and --beta2 must be below 1"),
        ({"schedule": {"name": "cosine"}, "stop": {"epochs": 0, "steps": 5}}, "--schedule cosine needs --epochs"),
        ({"schedule": {"name": "cosine", "warmup": 9}, "stop": {"epochs": 3}}, "--warmup"),
        ({"data": {"directory": "/no/such/folder"}}, "no such folder"),
        ({"cluster": {"ack": "replica"}}, "--ack replica needs another server to keep the copies, --servers says 1"),
        ({"data": {"partition": "fractions:1,2,3"}}, "--partition names 3 fractions, --workers says 4"),
        ({"data": {"partition": "file:/no/such/file"}}, "cannot read the data_sharding file /no/such/file"),
        ({"run": {"scheme": "gsp"}, "gsp": {"groups": "0,1;2"}}, "each of the workers 0..3 once"),
        ({"run": {"scheme": "gsp"}, "gsp": {"groups": "0,1;2,4"}}, "each of the workers 0..3 once"),
        ({"run": {"scheme": "asp"}, "cluster": {"servers": 0}}, "asp keeps its model on servers"),
        ({"cluster": {"servers": 0, "allreduce": "servers"}}, "--allreduce servers needs --servers"),
        ({"cluster": {"allreduce": "nccl", "device": "cpu"}}, "needs a GPU"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(values: Values, words: str) -> None:
    message = refusal(lambda: build(values))
    assert words in message, message


@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_schemes_of_equals_need_no_server(scheme: str) -> None:
    assert build({"run": {"scheme": scheme}, "cluster": {"servers": 0}}).cluster.servers == 0


def test_any_one_end_is_enough() -> None:
    for end in ({"seconds": 1.0}, {"steps": 1}, {"target_accuracy": 0.5}):
        assert build({"stop": {"epochs": 0, **end}})


# ---- files ---------------------------------------------------------------------------------------------------


def test_a_file_that_is_missing_or_no_toml_is_told_by_its_name(tmp_path: Path) -> None:
    assert "nowhere.toml: No such file" in refusal(lambda: load(tmp_path / "nowhere.toml"))
    assert "directory" in refusal(lambda: load(tmp_path)).lower()
    broken = tmp_path / "broken.toml"
    broken.write_text("[run\nscheme = ")
    assert "broken.toml" in refusal(lambda: load(broken))
    broken.write_bytes(b"\xff\xfe\x00")
    assert "broken.toml" in refusal(lambda: load(broken))


# ---- junk ----------------------------------------------------------------------------------------------------

_scalar = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "fractions:1", "dirichlet:nan", "file:", "0;1", "cuda:0", "cpu,cpu,cpu,cpu"]),
)
_value = st.one_of(_scalar, st.lists(_scalar, max_size=5), st.dictionaries(st.text(max_size=3), _scalar, max_size=2))
_known = st.sampled_from([(setting.section, setting.key) for setting in SETTINGS])
_place = st.one_of(_known, st.tuples(st.text(max_size=8), st.text(max_size=8)))


def told(error: ConfigError) -> bool:
    return "\n" not in str(error) and len(str(error)) > 5


@given(st.dictionaries(_place, _value, max_size=4))
@settings(max_examples=300)
def test_junk_is_refused_as_a_wrong_setting_and_nothing_else(junk: dict[tuple[str, str], Any]) -> None:
    values: Values = {}
    for (section, key), value in junk.items():
        values.setdefault(section, {})[key] = value
    try:
        once = to_dict(build(values))
    except ConfigError as wrong:
        told_well = told(wrong)
    else:
        told_well = to_dict(build(once)) == once
    assert told_well


@given(st.dictionaries(st.text(max_size=8), _value, max_size=3))
@settings(max_examples=100)
def test_junk_in_the_place_of_sections_is_refused_too(junk: dict[str, Any]) -> None:
    try:
        told_well = bool(build(junk))
    except ConfigError as wrong:
        told_well = told(wrong)
    assert told_well


@given(st.sampled_from(SETTINGS), st.text(max_size=12))
@settings(max_examples=300)
def test_junk_on_a_command_line_is_refused_too(setting: Flag, text: str) -> None:
    try:
        value = setting.parse(text)
    except ConfigError as wrong:
        told_well = told(wrong)
    else:
        told_well = setting.check(value) == value
    assert told_well
