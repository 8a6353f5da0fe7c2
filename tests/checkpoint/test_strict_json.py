"""Numbers that no run writes are refused."""

from __future__ import annotations

from pathlib import Path

from paceline.checkpoint import atomic_file
from paceline.checkpoint.folder_store import MANIFEST
from tests.checkpoint.test_manifest_facts import good, manifest

MODEL = "model.safetensors"


def test_numbers_that_no_run_writes_are_no_checkpoints(tmp_path: Path) -> None:
    folder = good(tmp_path)
    for name in ("5", "0000000000007", "9" * 30, "1\u0663345678"):
        (folder.root / name).mkdir()
        atomic_file.write(folder.root / name / MANIFEST, [manifest()])
    assert folder.numbers() == [1]
