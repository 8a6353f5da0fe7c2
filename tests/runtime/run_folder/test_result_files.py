"""The files that a run lists as its results exist."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.runtime.run_folder.result_files import Results


def test_what_is_listed_as_left_is_there(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "model.safetensors").write_text("of an earlier incarnation")
    results = Results(tmp_path, "token", said.append)
    assert results.left == {str(tmp_path): ["config.toml"]}
    assert results.write("summary.json", lambda path: path.touch())
    assert results.left == {str(tmp_path): ["config.toml", "summary.json"]}
    os.utime(tmp_path / "model.safetensors", ns=(1, 1))
    assert results.left == {str(tmp_path): ["config.toml", "summary.json", "model.safetensors"]}
    assert said == []
