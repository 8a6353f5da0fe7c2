"""docs/configuration.md knows every setting that is not a scheme's, with its flag and its default."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.config import settings
from paceline.core.scheme import names

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text()
OURS = [setting for setting in settings() if setting.section not in names()]


def rows(section: str) -> dict[str, list[str]]:
    """By key: the cells of its row."""
    part = PAGE.partition(f"### [{section}]\n")[2].partition("\n### ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return {cells[0].strip("` "): cells for line in lines for cells in [re.split(r"(?<!\\)\|", line.strip("|"))]}


def test_every_setting_has_a_row_in_its_section_and_no_other_has() -> None:
    for section in {setting.section for setting in OURS}:
        assert set(rows(section)) == {setting.key for setting in OURS if setting.section == section}, section


def test_every_row_has_the_flag() -> None:
    for setting in OURS:
        assert f"`--{setting.flag}`" in rows(setting.section)[setting.key][1], setting.flag


def test_every_row_has_the_choices() -> None:
    for setting in OURS:
        if setting.limits.choices:
            told = re.findall(r"`([^`]+)`", rows(setting.section)[setting.key][4])
            assert told == [str(choice) for choice in setting.limits.choices], setting.flag


def as_toml(default: object) -> str:
    if isinstance(default, str):
        return f'"{default}"'
    return str(list(default)) if isinstance(default, tuple) else str(default).lower()


def test_every_row_has_the_default() -> None:
    for setting in OURS:
        assert rows(setting.section)[setting.key][3].strip() == f"`{as_toml(setting.default)}`", setting.flag
