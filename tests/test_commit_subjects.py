"""The hook that refuses long subjects of commits; `make` tells git of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parent.parent / ".githooks" / "commit-msg"


@pytest.mark.parametrize(("subject", "code"), [("x" * 72, 0), ("é" * 72, 0), ("x" * 73, 1)])
def test_a_subject_has_72_characters_at_most(tmp_path: Path, subject: str, code: int) -> None:
    (tmp_path / "message").write_text(f"# a comment\n{subject}\n\n{'a long line of the body ' * 9}\n")
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([HOOK, tmp_path / "message"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("has 73 characters" in done.stderr) == bool(code)
