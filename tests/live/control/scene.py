"""A party whose coordinator follows a script."""

from __future__ import annotations

import threading
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.node.published_state import PublishedState, ReadState
from paceline.live.protocol.transport import Envelope, Kind, Transport
from tests.live.fakes import NumpyMemory, Recorder


class ListeningServer(Recorder):
    """A server that keeps what it hears. Asked whether it has taken that, it says so; not the first `silent` times."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self.transport, self.silent, self.asked = transport, 0, threading.Semaphore(0)

    def deliver(self, src: Party, envelope: Envelope) -> None:
        if not isinstance(envelope.message, ReadState):
            super().deliver(src, envelope)
            return
        if self.silent:
            self.silent -= 1
        else:
            self.transport.send(src, Envelope(Kind.REPLY, PublishedState(v=NumpyMemory().empty(0)), envelope.id))
        self.asked.release()


class Scene:
    """Worker 0 with its session, two servers that only listen, and the coordinator whose part the test plays."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.script = Recorder()
        self.coordinator = self.hub.transport(COORDINATOR)
        self.coordinator.open(self.script)
        self.heard: dict[Party, ListeningServer] = {}
        for shard in range(2):
            there = self.hub.transport(server(shard))
            self.heard[server(shard)] = ListeningServer(there)
            there.open(self.heard[server(shard)])
        transport = self.hub.transport(worker(0))
        self.node = Node(transport, NumpyMemory(), timeout_s=15.0)
        self.session = Session(transport, self.node, timeout_s=15.0)

    def tell(self, message: Any) -> None:
        self.coordinator.send(worker(0), Envelope(Kind.CONTROL, message))

    def hears(self) -> Any:
        src, message = self.script.next()
        assert src == worker(0)
        return message

    def begin(self, report: Any = None) -> None:
        """As far as the start of training."""
        self.session.hello("hub:coordinator", "cpu")
        assert isinstance(self.hears(), control.Hello)
        self.tell(control.Go())
        self.session.expect(control.Go)
        self.session.reports.begin(report)

    def close(self) -> None:
        self.session.close()
        for who in (*self.heard, COORDINATOR):
            member = self.hub.find(who)
            if member is not None:
                member.close()
