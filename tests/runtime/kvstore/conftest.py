"""Fixtures of this folder."""

from __future__ import annotations

import pytest

from tests.runtime.kvstore.one_server import Server


@pytest.fixture
def server() -> Server:
    return Server()
