"""Encodes the vectors of a message on its way out, and decodes them on the way in, side by side.

    out    codec (`encode`)      ->  rows (`send`)     ->  transport: frames (`frames.encode`)
    in     codec (`decode`)      <-  rows (`unpack`)   <-  transport: frames (`frames.assemble`)

    codec   vectors become fewer bytes (`paceline.codec.pipeline.stage`); the scheme says which
    rows    a vector of which only some rows are not zero becomes those rows (`row_packing.py`)
    frames  header and body (`frames.py`); between threads of one process there are none

Between rows and codec whoever receives checks the message: what may be sent at all (`control/permissions.py`), and
within which bounds (`node/message_checks.py`). A packed message is checked as what it is packed from.
"""

from __future__ import annotations

from paceline.codec.pipeline.stage import Room, Stage
from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost
from paceline.core.message import nature_of, vector_fields
from paceline.core.vector import Memory
from paceline.live.protocol.row_packing import Packed, Packer, PackingPost
from paceline.live.protocol.transport import Envelope, Transport


class MessageChannel:
    """Encodes and decodes for one process. It sends from any thread, and receives on the transport's."""

    def __init__(self, transport: Transport, memory: Memory, packer: Packer | None = None) -> None:
        self.me = transport.me
        self.stage = Stage(memory, nature_of, up=None, down=None)
        self.transport = transport
        self._rows = PackingPost(transport, packer) if packer else None
        self._packed = packer.packed if packer else None

    def use(self, stage: Stage) -> None:
        """Sets the codecs, before the scheme's first message."""
        self.stage = stage

    # ---- out ---------------------------------------------------------------------------------------------
    def encode_and_send(self, to: Party, envelope: Envelope, part: int) -> None:
        """Sends a message of the scheme, encoded. `part` is the slice that it is for or comes from.

        Raises PeerLost when there is no way to `to`, which then does not count as holding what was encoded.
        """
        stage = self.stage
        if stage.encodes:
            with stage.order(to):
                envelope.message = stage.outgoing(to, part, envelope.message)
                try:
                    self.send(to, envelope)
                except PeerLost:
                    stage.not_sent(to)
                    raise
        else:
            self.send(to, envelope)

    def send(self, to: Party, envelope: Envelope) -> None:
        """Sends a message as it is, or its rows. Raises PeerLost when there is no way to `to`."""
        if self._packed is not None:
            message = envelope.message
            for name in vector_fields(type(message)):
                if isinstance(getattr(message, name), self._packed):
                    assert self._rows is not None
                    self._rows.send(to, envelope)
                    return
        self.transport.send(to, envelope)

    # ---- in ----------------------------------------------------------------------------------------------
    def unpack(self, src: Party, envelope: Envelope, longest: int) -> bool:
        """Makes a packed message what it was; returns whether it was packed. Raises ProtocolError."""
        if self._rows is None or not isinstance(envelope.message, Packed):
            return False
        envelope.message = self._rows.unpacked(envelope.message, src, longest)
        return True

    def decode(self, src: Party, envelope: Envelope, room: Room) -> None:
        """Makes vectors of encoded ones; `room` says where to. Raises ProtocolError."""
        envelope.message = self.stage.incoming(src, envelope.message, room, from_server=src.kind == "server")

    # ---- both --------------------------------------------------------------------------------------------
    def lost(self, other: Party) -> None:
        """Forgets what codecs and rows know of `other`, since the connection to it was lost."""
        if self._rows:
            self._rows.forget(other)
        with self.stage.order(other):  # another thread may be encoding for it
            self.stage.lost(other)
