"""The place of a process before it has joined: what the launcher says, and without one that of a single worker."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.integrations.place import device_of_this_process, rank_of_this_process


def test_without_a_launcher_it_is_worker_0(alone: None) -> None:
    assert rank_of_this_process() == 0
    assert device_of_this_process().type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_the_launcher_says_rank_and_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("0" * 32)
    told = {"COORDINATOR": "127.0.0.1:1", "RANK": 2, "WORKERS": 3, "TOKEN_FILE": token, "DEVICE": "cpu"}
    for name, value in told.items():
        monkeypatch.setenv(f"PACELINE_{name}", str(value))
    assert rank_of_this_process() == 2
    assert device_of_this_process() == torch.device("cpu")
