"""Folders of runs: which runs belong together, and what of those that were killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.observe.runs.run_folders import find, groups
from paceline.observe.runs.summary import write_summary
from tests.observe.fake_runs import summary
from tests.observe.terminal.races import RACES, run


def test_runs_that_differ_in_their_seed_only_are_one_group() -> None:
    assert [(g.name, len(g.runs)) for g in groups(RACES)] == [("bsp", 2), ("esync", 3)]


def test_what_tells_two_groups_of_one_scheme_apart_is_in_their_names() -> None:
    wide, narrow = {"data.partition": "uniform", "run.seed": 1}, {"data.partition": "class", "run.seed": 2}
    names = [g.name for g in groups([run("esync", 1, wide), run("esync", 2, narrow), run("bsp", 3, wide)])]
    assert names == ["esync partition=uniform", "esync partition=class", "bsp"]


def test_a_folder_of_runs_is_all_of_them_and_what_is_no_run_is_skipped_with_a_note(tmp_path: Path) -> None:
    write_summary(summary("bsp"), tmp_path / "race" / "bsp" / "summary.json")
    write_summary(summary("asp"), tmp_path / "race" / "asp" / "summary.json")
    (tmp_path / "spoilt").mkdir()
    (tmp_path / "spoilt" / "summary.json").write_text("{")
    runs, notes = find([str(tmp_path / name) for name in ("race", "spoilt", "nowhere")])
    assert [r.summary.scheme for r in runs] == ["asp", "bsp"]
    assert [note.rpartition("/")[2].partition(":")[0] for note in notes] == ["summary.json", "nowhere"]
    with pytest.raises(ConfigError, match="no run was found"):
        find([str(tmp_path / "nowhere")])
