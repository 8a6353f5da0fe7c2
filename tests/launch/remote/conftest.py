"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.launch.remote import callback_listener as doors
from paceline.launch.remote.callback_listener import CallbackListener


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CallbackListener]:
    """One at which nobody is ever late, so that all who are sent away were evicted."""
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 600.0)
    monkeypatch.setattr(doors, "CALLERS_MAX", 4)
    monkeypatch.setattr(doors, "STRANGERS_MAX", 2)
    monkeypatch.setattr(doors, "AGAIN_SECONDS", 0.01)
    door = CallbackListener("127.0.0.1")
    door.write_ticket(tmp_path / "ticket")
    yield door
    door.close()


@pytest.fixture
def ticket(door: CallbackListener, tmp_path: Path) -> Path:
    return tmp_path / "ticket"
