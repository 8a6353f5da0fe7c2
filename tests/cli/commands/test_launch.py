"""`paceline launch` over several hosts into a folder whose name agents cannot be told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.cli.commands.launch import main
from paceline.core.errors import ConfigError


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_folder_whose_name_is_no_utf_8_is_refused_in_one_line_and_not_made(tmp_path: Path, more: list[str]) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("198.51.100.7\n")
    out = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")
    with pytest.raises(ConfigError, match=r"--out .*/a\\xff: with several hosts the name .* must be UTF-8$"):
        main(["--workers", "1", "--hosts", str(hosts), "--bind", "127.0.0.1", "--out", out, *more, "--", "true"])
    assert [path.name for path in tmp_path.iterdir()] == ["hosts"]
