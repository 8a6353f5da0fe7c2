"""However many knock, the log has a line now and then."""

from __future__ import annotations

import logging

import pytest

from paceline.live.security import rejected_connections
from paceline.live.security.rejected_connections import LINE_SECONDS, Refusals


def test_there_is_one_line_in_ten_seconds_and_it_counts_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(rejected_connections.time, "monotonic", lambda: now)
    noted = Refusals("server 0")
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            noted.note("10.0.0.7", "no handshake")
        assert len(caplog.messages) == 1
        now += LINE_SECONDS - 0.1
        noted.note("10.0.0.7", "no handshake")
        assert len(caplog.messages) == 1
        now += 0.2
        noted.note("10.0.0.8", "no token")
    assert caplog.messages == [
        "server 0 rejected a connection from 10.0.0.7: no handshake",
        "server 0 rejected a connection from 10.0.0.8: no token (and 1000 more before)",
    ]
