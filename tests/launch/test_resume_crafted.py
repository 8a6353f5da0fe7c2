"""`paceline train --resume auto` as users start it, in a folder where somebody has put checkpoints that do harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint.folder_store import CHECKPOINTS, MANIFEST, FolderStore
from tests.checkpoint.test_manifest_facts import NONSENSE, device, fifo, fifo_as_model
from tests.launch.forked_cli import Warm

CRAFTED = (
    "deep lists",
    "infinity",
    "samples as a list",
    "a name twice",
    "a file of negative length",
    "half a character",
)
SMALL = ["--workers", "1", "--model", "mlp", "--width", "0.25", "--epochs", "0", "--verbose", "0"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="forks on Linux")
def test_a_run_goes_on_from_the_good_one_and_names_each_that_it_passes_over(warm: Warm, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = warm.paceline("train", "--out", str(out), "--steps", "3", *SMALL)
    _, said = first.communicate(90)
    assert first.returncode == 0, said
    folder = FolderStore(out / CHECKPOINTS)
    newest = folder.numbers()[-1]
    numbers = range(newest + 1, newest + 10)
    for number in numbers:
        folder.place(number).mkdir()
    for number, what in zip(numbers, CRAFTED, strict=False):
        (folder.place(number) / MANIFEST).write_bytes(NONSENSE[what])
    for number, craft in zip(numbers[len(CRAFTED) :], (fifo, device, fifo_as_model), strict=True):
        craft(folder.place(number))
    again = warm.paceline("train", "--out", str(out), "--steps", "5", "--resume", "auto", *SMALL)
    _, said = again.communicate(90)
    assert again.returncode == 0, said
    told = [line for line in said.splitlines() if "is passed over" in line or "are passed over" in line]
    assert [line.split()[1] for line in told[:8]] == [str(number) for number in reversed(numbers)][:8]
    assert any(f"resumes checkpoint {newest} of" in line for line in said.splitlines()), said
    assert (out / "model.safetensors").exists()
    assert "Traceback" not in said
