"""The keys of a run: made where others can reach it, private, and gone with it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from paceline import config as configuration
from paceline.config import Config
from paceline.core.coordination.party import COORDINATOR, EVALUATOR, server, worker
from paceline.core.errors import ConfigError
from paceline.runtime.supervisor.credentials import credentials_for, security_note


def config(**cluster: Any) -> Config:
    return configuration.build({"cluster": {"workers": 2, "servers": 1, **cluster}})


def test_a_run_that_nobody_else_reaches_has_no_keys() -> None:
    assert credentials_for(config()) is None
    assert security_note(config(), None, "ring") == (
        "security: nothing listens beyond this machine (127.0.0.1); both sides prove the run's token"
    )


def test_every_party_has_a_key_in_a_folder_of_its_owner_that_goes_with_the_run() -> None:
    credentials = credentials_for(config(bind="10.0.0.1"))
    assert credentials is not None
    folder = Path(credentials.path).parent
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for who in (worker(1), server(0), COORDINATOR, EVALUATOR):
            assert credentials.tls(who).job
        with pytest.raises(ConfigError, match="worker 2"):  # there is none in this run
            credentials.tls(worker(2))
    finally:
        credentials.remove()
    assert not folder.exists()


def test_the_first_lines_of_a_run_say_what_travels_in_the_clear() -> None:
    secured = config(bind="10.0.0.1")
    credentials = credentials_for(secured)
    assert credentials is not None
    try:
        note = security_note(secured, credentials, "ring")
        assert note.startswith("security: TLS 1.3 on 10.0.0.1; parties show certificates of this run (")
        assert credentials.pin[:19] in note
        assert "in the clear" not in note
        assert "but not for means: gloo sends them in the clear" in security_note(secured, credentials, "gloo")
    finally:
        credentials.remove()
