"""Workers measure their links to servers on other hosts."""

from __future__ import annotations

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party, server
from tests.live.control.scene import Scene


@pytest.mark.parametrize(
    ("hosts", "measured"),
    [
        ({"worker 0": "here", "server 0": "here", "server 1": "here"}, []),
        ({"worker 0": "here", "server 0": "here", "server 1": "there"}, [False, True]),
        ({"worker 0": "here", "server 0": "there", "server 1": "there"}, [True, True]),
    ],
)
def test_the_links_to_servers_on_other_hosts_are_measured(
    scene: Scene, hosts: dict[str, str], measured: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.session.hello("hub:coordinator", "cpu")
    scene.tell(control.Roster(addresses={"server 0": "hub:server 0", "server 1": "hub:server 1"}, hosts=hosts))
    scene.session.connect([server(0), server(1)])
    looked: list[tuple[Party, str]] = []
    monkeypatch.setattr(
        "paceline.live.control.handshake.timed_look", lambda node, who, what: looked.append((who, what)) or 0.001
    )
    links = scene.session.links(2)
    assert [link is not None for link in links] == measured
    for number, link in enumerate(links):
        if link is not None:
            link.measure()
            assert {who for who, _ in looked} == {server(number)}
            looked.clear()
    assert scene.session.links(1) == []
