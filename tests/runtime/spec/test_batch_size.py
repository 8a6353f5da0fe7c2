"""A batch that is larger than the data is refused; one that is larger than a worker's share is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.config import build
from paceline.core.errors import ConfigError
from paceline.runtime.spec.batch_size import batch_size_note, check_batch_size

Capture = pytest.CaptureFixture[str]


def config(batch_size: int, workers: int = 4, partition: str = "uniform"):  # type: ignore[no-untyped-def]
    return build({"data": {"batch_size": batch_size, "partition": partition}, "cluster": {"workers": workers}})


def test_a_batch_larger_than_the_data_is_refused() -> None:
    check_batch_size(config(1437), 1437)
    with pytest.raises(ConfigError, match="--batch-size 1438: digits has 1437 samples to train on"):
        check_batch_size(config(1438), 1437)


def test_a_batch_larger_than_a_share_is_said_where_shares_are_equal() -> None:
    assert batch_size_note(config(25), 100) == ""
    assert "each of 4 workers has 25 samples" in batch_size_note(config(26), 100)
    assert "has 26 samples at most" in batch_size_note(config(50), 101)
    assert batch_size_note(config(90, partition="dirichlet:0.1"), 100) == ""  # the worker's log says what it has


def test_it_is_said_in_a_line_and_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--scheme", "bsp", "--workers", "4", "--step-ms", "5", "--epochs", "2"]
    assert main(["simulate", *small, "--batch-size", "5000"]) == 2
    assert capsys.readouterr().err.startswith("paceline: --batch-size 5000: digits has ")
    assert not list(tmp_path.glob("runs/*"))
    assert main(["simulate", *small, "--batch-size", "400", "--out", "run"]) == 0
    assert "--batch-size 400 is more than a worker's share" in capsys.readouterr().err.splitlines()[0]
    assert main(["simulate", *small, "--batch-size", "5000", "--timing-only", "--out", "timing"]) == 0
    assert "curve.png" not in capsys.readouterr().out
    assert not (tmp_path / "timing" / "curve.png").exists()
