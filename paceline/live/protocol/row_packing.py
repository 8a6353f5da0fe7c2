"""Vectors that leave as fewer numbers than they have, such as a gradient of which only some rows are not zero.

What a packer makes of a vector is a vector again, so it travels like any other, over any transport. The message it
belongs to is put into a `Packed`, and is the old one when the receiver's role sees it.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, Protocol

import msgspec

from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.message import message, named, scalar_fields, vector_fields
from paceline.core.validation import bounds
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Transport

_encode = msgspec.msgpack.Encoder().encode


@message("packing.Packed")
class Packed:
    """A message called `name` whose only vector, of `length` numbers, was packed into `v`; `how` is the packer's."""

    name: bounds.Name
    scalars: bounds.LongBytes
    length: bounds.Elements
    how: bounds.Integers
    v: bounds.Parcel


class Parcel(NamedTuple):
    """What is sent in place of a vector, and what the other side must know to unpack it."""

    numbers: Any
    how: tuple[int, ...]


class Packer(Protocol):
    """Both ends of one party; what it packs for another one arrives in that order."""

    @property
    def packed(self) -> type:
        """Returns the class of the vectors that cannot travel as they are."""

    def pack(self, v: Any, to: Party) -> Parcel:
        """Returns what is sent to a party in place of a vector."""

    def plain(self, v: Any) -> Any:
        """`v`, which may be of any kind, as a vector that can travel as it is."""

    def unpack(self, parcel: Parcel, length: int, src: Party) -> Any:
        """Returns the vector of `length` numbers. Raises ProtocolError for a parcel that no packer makes."""

    def forget(self, party: Party) -> None:
        """Forgets what a party that is gone held."""


class PackingPost:
    """Sends over `transport`, packed where the packer finds something to pack."""

    def __init__(self, transport: Transport, packer: Packer) -> None:
        self.me = transport.me
        self._transport, self._packer = transport, packer
        self._lock = threading.Lock()  # what is packed in some order leaves in that order

    def send(self, to: Party, envelope: Envelope) -> None:
        """Does what `Transport.send` does."""
        message = envelope.message
        vectors = {name: getattr(message, name) for name in vector_fields(type(message))}
        if not any(isinstance(v, self._packer.packed) for v in vectors.values()):
            self._transport.send(to, envelope)
        elif len(vectors) > 1:
            envelope.message = _with(message, {name: self._packer.plain(v) for name, v in vectors.items()})
            self._transport.send(to, envelope)
        else:
            (v,) = vectors.values()
            with self._lock:
                self._send_packed(to, envelope, v)

    def _send_packed(self, to: Party, envelope: Envelope, v: Any) -> None:
        """Sends a message whose vector is packed, in the order in which it was packed.

        A party that cannot be reached does not get the parcel, and so may not be thought to hold what is in it.
        """
        codec = frames.codec_of(type(envelope.message))  # type: ignore[arg-type]
        scalars = _encode(codec.scalars(envelope.message))
        parcel = self._packer.pack(v, to)
        envelope.message = Packed(name=codec.name, scalars=scalars, length=len(v), how=parcel.how, v=parcel.numbers)
        try:
            self._transport.send(to, envelope)
        except PeerLost:
            self._packer.forget(to)
            raise

    def unpacked(self, packed: Packed, src: Party, longest: int) -> Any:
        """Returns the message that was packed. Raises ProtocolError."""
        if not 0 <= packed.length <= (longest or packed.length):
            raise ProtocolError(
                f"{src} sends a vector of {packed.length} elements, {self.me} expects {longest} at most"
            )
        try:
            codec = frames.codec_of(named(packed.name))
            scalars = codec.decode(packed.scalars)
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"the packed message cannot be read: {error}") from None
        if codec.cls is Packed or len(codec.vectors) != 1:
            raise ProtocolError(f"a {codec.name} is never packed")
        v = self._packer.unpack(Parcel(packed.v, packed.how), packed.length, src)
        return frames.assemble(codec, scalars, [v])

    def forget(self, party: Party) -> None:
        """Forgets a party that is gone."""
        with self._lock:
            self._packer.forget(party)


def _with(message: Any, vectors: dict[str, Any]) -> Any:
    """Returns the message with these vectors in place of its own."""
    cls = type(message)
    return cls(**{name: getattr(message, name) for name in scalar_fields(cls)}, **vectors)
