"""`paceline speedo`: a command line of SpeeDO's manual trains a net of Caffe."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from paceline.cli.commands import train
from paceline.cli.main import main
from paceline.observe.runs.summary import read_summary
from tests.compat.speedo.nets import written

MANUAL = (
    "java -cp SpeeDO-akka-1.0.jar com.htc.speedo.akka.AkkaUtil --solver {solver} --worker 3 --redis localhost "
    "--test 20 --maxIter 40 --host localhost --sync"
)


def test_the_command_line_of_the_manual_trains_and_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = MANUAL.format(solver=written(tmp_path).name)
    ours = "--data digits --batch 32 --out run"  # the net names no data
    assert main(["speedo", *shlex.split(f"{command} {ours}")]) == 0
    said = capsys.readouterr().err
    assert "paceline: the same as: paceline train --lr 0.1 --momentum 0" in said
    assert "weights do not travel by Redis" in said
    assert "a merge is 96 samples: --maxIter 40 is --total-samples 3840" in said
    summary = read_summary(tmp_path / "run" / "summary.json")
    assert (summary.scheme, summary.samples) == ("bsp", 3840)
    assert [worker.steps for worker in summary.workers] == [41, 41, 41]  # a short batch ends each epoch
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.7  # chance is 0.12


def test_options_of_paceline_win_and_a_strategy_needs_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trained: list[list[str]] = []
    monkeypatch.setattr(train, "main", lambda words: trained.append(words) or 0)
    words = "speedo --solver weedout --worker 4 --maxIter 10 --batch 8 --model lenet --epochs 3"
    assert main(words.split()) == 0
    (made,) = trained
    assert made[made.index("--scheme") + 1] == "weedout"
    assert made.count("--epochs") == 1
    assert made[made.index("--epochs") + 1] == "3"
    assert main(["speedo", "--worker", "2"]) == 2
    assert "--solver: name the solver file" in capsys.readouterr().err
