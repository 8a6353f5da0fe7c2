"""What `paceline launch` refuses before anything starts."""

from __future__ import annotations

import os
import sys
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


@pytest.mark.parametrize("words", [["paceline"], ["/some/bin/paceline"], [sys.executable, "-m", "paceline"]])
def test_paceline_itself_is_no_script_however_it_is_named(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="of Paceline's own commands `paceline train` can be launched"):
        main([*words, "race"])
    with pytest.raises(ConfigError, match="unknown option --no-such"):
        main([*words, "train", "--no-such", "1"])
