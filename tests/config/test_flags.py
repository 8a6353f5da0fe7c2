"""Flags: one for every setting, read as the setting is typed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline import config as configuration
from paceline.config import Flag
from paceline.core.errors import ConfigError
from tests.config.settings import refusal, told

SETTINGS = list(configuration.settings())


BY_FLAG = {setting.flag: setting for setting in SETTINGS}


def test_every_setting_has_a_flag_of_its_own_and_help() -> None:
    assert len(BY_FLAG) == len(SETTINGS)
    for setting in SETTINGS:
        assert len(setting.limits.help) > 3, setting.flag
        assert setting.flag == setting.flag.lower()
        assert "_" not in setting.flag


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.flag)
def test_every_default_passes_its_own_limits(setting: Flag) -> None:
    assert setting.check(setting.default) == setting.default


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.flag)
def test_the_default_written_on_a_command_line_is_the_default(setting: Flag) -> None:
    text = ",".join(map(str, setting.default)) if isinstance(setting.default, tuple) else str(setting.default)
    assert setting.parse(text) == setting.default


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


@pytest.mark.parametrize("text", ["\n", "0\n1", "\x1b[2J", "links:\n", "file:\n", "none\u2028"])
def test_what_is_refused_is_shown_in_one_line(text: str) -> None:
    told_of = {setting.flag: _refused(setting, text) for setting in SETTINGS}
    assert told_of["bind-cores"]
    for flag, message in told_of.items():
        assert message.isprintable(), flag
        assert message.count(f"--{flag} ") <= 1


def _refused(setting: Flag, text: str) -> str:
    """Why the setting cannot be `text`; empty where it can."""
    try:
        setting.parse(text)
    except ConfigError as refused:
        return str(refused)
    return ""


def test_whoever_reads_flags_goes_without_the_simulator() -> None:
    lines = "import sys, paceline.config.group_names, paceline.config; print('paceline.sim' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "False\n"
