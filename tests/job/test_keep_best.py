from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.checkpoint.folder import Folder
from paceline.checkpoint.manifest import Manifest
from paceline.cli.checkpoint import main
from tests.job.conftest import Runner
from tests.job.reference import config_for


def test_a_run_keeps_its_best_checkpoint_besides_the_last(
    threads: Runner, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged: list[tuple[float, int]] = []
    save = Folder.save

    def falling(self: Folder, number: int, contents: Any, *, finite: bool, **facts: Any) -> Manifest:
        facts["accuracy"] = 1.0 / number  # the first is the best one
        judged.append((facts["accuracy"], number))
        return save(self, number, contents, finite=finite, **facts)

    monkeypatch.setattr(Folder, "save", falling)
    often = {"every": 0.01, "keep_last": 1, "keep_best": True}
    threads(config_for(out, steps=30, cluster={"step_ms": 5.0}, checkpoint=often, evaluation={"every": 0.01}))
    assert len(judged) > 2
    assert Folder(out / "checkpoints").numbers() == [1, judged[-1][1]]
    assert main(["list", str(out)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert "test accuracy 1.000" in first
    assert first.endswith("healthy, best")
    assert last.endswith("healthy")
