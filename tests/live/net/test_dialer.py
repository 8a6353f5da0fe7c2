"""Calls to another party: again after an eviction, and a peer that is not there is lost."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

import pytest

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.errors import PeerLost
from paceline.core.parties import first_contact
from paceline.live.net.dialer import Dialer
from tests.live.bare_transport import Someone


def test_nobody_at_the_address_is_a_lost_peer(someone: Callable[..., Someone]) -> None:
    alone = someone(worker(0))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    for address in (f"127.0.0.1:{port}", "nonsense", "127.0.0.1:port"):
        with pytest.raises(PeerLost, match="worker 0 cannot reach server 0 at"):
            alone.transport.connect(server(0), address)
    with pytest.raises(PeerLost, match="worker 0 has no connection to server 0"):
        alone.say(server(0), 1)


def test_one_that_is_sent_away_at_the_door_calls_again(
    host: Someone, someone: Callable[..., Someone], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when too many call at once; but one who is told why does not."""
    guest, calls, call = someone(worker(0)), list[str](), Dialer._call_once
    sent_away: list[OSError] = [ConnectionResetError(), ssl.SSLEOFError()]

    def called(self: Dialer, party: Party, address: str, lane: bool) -> socket.socket:
        calls.append(address)
        if sent_away:
            raise sent_away.pop()
        return call(self, party, address, lane)

    monkeypatch.setattr(Dialer, "_call_once", called)
    monkeypatch.setattr(first_contact, "AGAIN_SECONDS", (0.01, 0.01))
    guest.transport.connect(COORDINATOR, host.transport.address)
    guest.say(COORDINATOR, 7)
    assert host.heard.next() == (worker(0), Total(samples=7))
    for refusals, tries in ([ConnectionResetError()] * 3, 3), ([ConnectionRefusedError()], 1):
        sent_away[:], calls[:] = refusals, []
        with pytest.raises(PeerLost, match="cannot reach server 0"):
            guest.transport.connect(server(0), host.transport.address)
        assert len(calls) == tries
