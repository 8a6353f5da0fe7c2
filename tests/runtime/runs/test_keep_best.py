from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint.folder_store import FolderStore
from paceline.cli.commands.checkpoint import main
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for


@pytest.mark.parametrize("keep_best", [True, False])
def test_a_run_keeps_its_best_checkpoint_besides_the_last(
    threads: Runner, out: Path, capsys: pytest.CaptureFixture[str], keep_best: bool
) -> None:
    folder = FolderStore(out / "checkpoints")
    for number, accuracy in ((1, 1.0), (2, 0.01)):  # of an earlier incarnation
        folder.save(number, {}, finite=True, accuracy=accuracy)
    threads(config_for(out, steps=3, checkpoint={"keep_last": 1, "keep_best": keep_best}))
    assert folder.numbers() == ([1, 3] if keep_best else [3])
    assert main(["list", str(out)]) == 0
    marked = [line.endswith("healthy, best") for line in capsys.readouterr().out.splitlines()]
    assert marked == ([True, False] if keep_best else [True])
