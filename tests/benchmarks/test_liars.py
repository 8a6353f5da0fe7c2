"""Two lies of a worker, in processes: the run ends well and names the liar. The script tries all fields."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


def test_a_lying_worker_is_named_and_expelled_and_the_run_ends_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    liars = importlib.import_module("liars")
    code = liars.main(["--only", "Push.samples,Push.data", "--epochs", "3", "--bound", "0.3"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert said.count(", named, expelled,") == 2, said
