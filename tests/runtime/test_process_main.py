"""A process of a run takes its part, and says by type why it ends."""

from __future__ import annotations

import pytest

from paceline.core.coordination import party
from paceline.core.errors import OtherVersion
from paceline.live.net.inprocess_transport import Hub
from paceline.runtime.process_main import take_part
from paceline.runtime.spec.process_spec import ProcessSpec


def leaving(hub: Hub) -> str:
    """Returns the address of a coordinator that goes away when anybody says anything to it."""
    transport = hub.transport(party.COORDINATOR)

    class Handler:
        def __getattr__(self, name: str) -> object:
            return lambda *_, **__: transport.close()

    return str(transport.open(Handler()))  # type: ignore[arg-type]


def test_who_ends_because_the_coordinator_is_gone_says_so_by_type() -> None:
    hub = Hub()
    address = leaving(hub)
    spec = ProcessSpec(party="server 0", workers=1, servers=1, coordinator=address, token="")
    ended = take_part(spec, hub.transport(spec.who))
    assert (ended.who, ended.lost_coordinator) == (spec.who, True)
    assert "the coordinator is gone" in ended.why


def test_who_speaks_another_version_than_the_coordinator_says_so_by_type_and_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Hub()
    spec = ProcessSpec(party="server 0", workers=1, servers=1, coordinator="hub", token="")
    transport = hub.transport(spec.who)
    says = "server 0 cannot reach coordinator: the other side speaks protocol version 3, this side 2"

    def refused(*_: object) -> None:
        raise OtherVersion(says)

    monkeypatch.setattr(transport, "connect", refused)
    ended = take_part(spec, transport)
    assert (ended.other_version, ended.lost_coordinator) == (True, False)
    assert ended.why == says.replace("server 0 cannot", "server 0: cannot")
