"""Sends control messages to all servers, outside the scheme: of a worker the optimizer's hyperparameters (`Rate`), of
the evaluator captures (`Capture`).

A server applies what worker i sends with the last Rate of worker i. A server that was restored has the Rate of its
snapshot, so the worker repeats its own before it pushes again.
"""

from __future__ import annotations

import contextlib
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.errors import PeerLost
from paceline.core.parties.outgoing_calls import OutgoingCalls
from paceline.live.node.message_sender import OpenCall
from paceline.live.protocol.transport import Envelope, Kind, Transport


class ServerMessages:
    """Tells the servers of one worker's changes; any thread may call it."""

    def __init__(self, transport: Transport, calls: OutgoingCalls[OpenCall]) -> None:
        self._transport, self._calls = transport, calls
        self._rate: tuple[int, control.Rate] | None = None  # how many servers were told, and what

    def tell(self, count: int, message: Any) -> None:
        """Sends `message` to the first `count` servers. Raises PeerLost if one is lost for good."""
        for shard in range(count):
            try:
                self._send(shard, message)
            except PeerLost:
                if not self._calls.waits_for(party.server(shard)):
                    raise

    def tell_rate(self, count: int, rate: control.Rate) -> None:
        """Sets the rate of all that is sent from now on, also to servers that replace these. Raises as `tell`."""
        self._rate = count, rate
        self.tell(*self._rate)

    def repeat_rate(self) -> None:
        """Repeats the present rate, since restored servers have that of an earlier time."""
        told = None
        while self._rate is not None and told is not self._rate:  # the party's own thread may tell another meanwhile
            told = self._rate
            for server in range(told[0]):
                with contextlib.suppress(PeerLost):  # there will be another Resume, or the run ends
                    self._send(server, told[1])

    def _send(self, shard: int, message: Any) -> None:
        """Sends a message of the control plane to one server."""
        self._transport.send(party.server(shard), Envelope(Kind.CONTROL, message))
