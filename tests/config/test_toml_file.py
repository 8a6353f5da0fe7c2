"""Configurations in TOML files come back as they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.config import build, load, save, to_dict
from paceline.core.errors import ConfigError
from paceline.core.scheme import names
from tests.config.settings import _value, refusal, told

Values = dict[str, dict[str, Any]]


@pytest.mark.parametrize("scheme", names())
def test_what_was_written_out_builds_the_same_configuration(scheme: str) -> None:
    config = build({"run": {"scheme": scheme}, "cluster": {"workers": 2, "slowdown": [1, 2.5], "step_ms": 2.0}})
    again = build(to_dict(config))
    assert to_dict(again) == to_dict(config)
    assert again.scheme() == config.scheme()
    assert build(to_dict(again)) == again


@pytest.mark.parametrize("scheme", names())
def test_what_was_not_given_is_fitted_to_a_short_run_in_each_process(scheme: str, tmp_path: Path) -> None:
    """Written out, defaults would count as given: processes trained in longer rounds than the command had said."""
    config = build({"run": {"scheme": scheme}, "stop": {"epochs": 2.0}})
    assert build(to_dict(config)).scheme_of(1437) == config.scheme_of(1437)
    save(config, tmp_path / "config.toml")
    assert build(load(tmp_path / "config.toml")).scheme_of(1437) == config.scheme_of(1437)
    given = build({"run": {"scheme": "decoupled"}, "stop": {"epochs": 2.0}, "decoupled": {"h": 24}})
    assert build(to_dict(given)).scheme_of(1437).parameters()["h"] == 24


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


def test_a_file_that_is_missing_or_no_toml_is_told_by_its_name(tmp_path: Path) -> None:
    assert "nowhere.toml: No such file" in refusal(lambda: load(tmp_path / "nowhere.toml"))
    assert "directory" in refusal(lambda: load(tmp_path, named=True)).lower()
    assert "not a regular file" in refusal(lambda: load(tmp_path))
    broken = tmp_path / "broken.toml"
    broken.write_text("[run\nscheme = ")
    assert "broken.toml" in refusal(lambda: load(broken))
    broken.write_bytes(b"\xff\xfe\x00")
    assert "broken.toml" in refusal(lambda: load(broken))


@given(st.dictionaries(st.text(max_size=8), _value, max_size=3))
@settings(max_examples=100)
def test_junk_in_the_place_of_sections_is_refused_too(junk: dict[str, Any]) -> None:
    try:
        told_well = bool(build(junk))
    except ConfigError as wrong:
        told_well = told(wrong)
    assert told_well


@pytest.mark.parametrize("what", ["a FIFO", "a link"])
def test_in_a_strangers_folder_it_replaces_what_is_there_and_reads_files_alone(tmp_path: Path, what: str) -> None:
    path, outside = tmp_path / "config.toml", tmp_path / "mine"
    outside.write_text("[run]\n")
    os.mkfifo(path) if what == "a FIFO" else path.symlink_to(outside)
    with pytest.raises(ConfigError, match=r"config\.toml: "):
        load(path)
    save(build({}), path)
    assert path.is_file()
    assert not path.is_symlink()
    assert outside.read_text() == "[run]\n"
    assert build(load(path)).run.scheme == build({}).run.scheme
