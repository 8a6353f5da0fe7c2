"""A token in a file of its own, as the user of two machines has it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    secret = "0123456789abcdef" * 4
    path = tmp_path / "token"
    path.write_text(secret)
    path.chmod(0o600)
    monkeypatch.setenv("PACELINE_TOKEN_FILE", str(path))
    return secret
