"""Fixtures of this folder."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.launch.local.launcher import LocalHost
from tests.launch.local.parties import config_for


@pytest.fixture(scope="package")
def host() -> Iterator[LocalHost]:
    with LocalHost() as running:
        running.launcher().prepare(config_for(Path("unused")))
        yield running


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A coordinator that never says a word, so that a party that is started stays."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock
