"""What -v and -vv tell of connections and messages, and that silence costs nothing."""

from __future__ import annotations

import logging

import pytest

from paceline.core.coordination.party import server, worker
from paceline.core.paramserver.gated_server import Push
from paceline.live.net.inprocess_transport import Hub
from paceline.live.net.message_log import log, with_logging
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import Recorder, take, vector


def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, verbose: int) -> list[str]:
    """Of a worker that pushes to a server and is gone; sorted, since two threads write them."""
    monkeypatch.setattr(log, "level", log.level)  # put back afterwards
    hub, heard = Hub(), Recorder()
    there = with_logging(hub.transport(server(0)), verbose)
    there.open(heard)
    here = with_logging(hub.transport(worker(1)), verbose)
    here.open(Recorder())
    here.connect(server(0), there.address)
    here.send(server(0), Envelope(Kind.CALL, Push(g=vector(7, 8, 9), clock=2, samples=32), 5))
    src, envelope = take(heard.delivered)
    assert (src, envelope.message.clock) == (worker(1), 2)
    here.close()
    take(heard.losses)
    there.close()
    return sorted(caplog.messages)


def test_every_message_is_told_at_both_ends_with_its_numbers_and_the_size_of_its_vectors(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_of = "message=Push kind=CALL id=5 slice=0 clock=2 samples=32 data=<0> unused=<0> g=[3]"
    seen = lines(caplog, monkeypatch, 2)
    assert f'worker 1 send to="server 0" {told_of}' in seen
    assert f'server 0 got from="worker 1" {told_of}' in seen
    assert not any("8" in line.partition("g=")[2] for line in seen)


def test_connections_are_told_without_messages(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [" ".join(line.split()[:3]) for line in lines(caplog, monkeypatch, 1)]
    assert events == [
        "server 0 close",
        "server 0 lost",
        "server 0 open",
        "worker 1 close",
        "worker 1 connect",
        "worker 1 open",
    ]


def test_who_is_not_asked_has_its_own_transport_and_nothing_around_it() -> None:
    transport = Hub().transport(worker(0))
    assert with_logging(transport, 0) is transport
    transport.close()


def test_words_from_elsewhere_cannot_begin_a_line_of_their_own(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "level", logging.DEBUG)
    transport = with_logging(Hub().transport(worker(0)), 1)
    transport.drop(server(0), 0, "gone\nworker 9 open")
    transport.close()
    assert caplog.messages[0] == 'worker 0 drop whom="server 0" incarnation=0 why="gone\\nworker 9 open"'
