"""Fixtures of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for tickets of this test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path
