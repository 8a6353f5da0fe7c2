"""A redis-server of these tests' own, on the loopback address."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.checkpoint.redis_store import connect
from paceline.checkpoint.redis_url import Address
from tests.free_port import free_port

PASSWORD = "hush"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Wants PASSWORD. Skips where the server or the library is missing."""
    pytest.importorskip("redis", reason="pip install 'paceline[redis]'")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server: make lab-packages installs it")
    port = free_port()
    folder: Path = tmp_path_factory.mktemp("redis")
    options = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(folder),
        "--requirepass",
        PASSWORD,
    ]
    server = subprocess.Popen([program, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout)
        yield Address(host="127.0.0.1", port=port)
    finally:
        server.terminate()
        server.communicate()


@pytest.fixture
def address(redis_server: Address) -> Iterator[Address]:
    """Of a store in which nothing is."""
    client, _ = connect(redis_server, PASSWORD)
    client.flushall()
    yield redis_server
    client.close()
