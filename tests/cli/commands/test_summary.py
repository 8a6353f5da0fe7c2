"""`paceline summary` of a single run."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.core.trace import Leased
from paceline.observe.formatting.number_format import leased_text
from paceline.observe.runs.summary import write_summary
from tests.observe.fake_runs import summary

LEASED = Leased(at=2.0, epochs=1, done=64, twice=0, returned=8, dropped=0, undone=0, left_out=0)


def test_the_command_shows_the_workers_of_a_single_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(summary("bsp", workers=3), tmp_path / "a" / "summary.json")
    assert main(["summary", str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out
    assert "3 workers" in out
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["0", "1", "2"]
    assert "leased" not in out
    assert main(["summary", str(tmp_path / "b")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_what_became_of_leased_data_is_told_with_the_workers_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_summary(summary("asp", leased=LEASED), tmp_path / "a" / "summary.json")
    assert main(["summary", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.endswith("\n" + leased_text(LEASED) + "\n")
