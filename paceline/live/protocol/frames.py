"""Frames: how a message becomes bytes and back.

    prefix   28 bytes, big-endian: magic "PACE", version, kind, slice, header length, id, body length
    header   msgpack: [message name, [vector lengths], scalars, [places], [loans over], [forms], view]    at most 64 KiB
    body     the vectors, float32, one after the other, straight from and into the final buffers

Between processes of one host a vector may stay where it is (`paceline.live.net.zero_copy`): its place says where, and
it adds nothing to the body. A vector that a codec has made bytes of has a form, which says how many, of which codec and
to which row they belong (`paceline.codec.encoded`). Places and forms are left out where there is none. The top bit of
the kind says that the body is striped: it comes over the lanes of the connection (`paceline.live.net.striping`).

Nothing is unpickled; scalars are decoded into the declared types of the message and nothing else; every length is
checked before memory is taken.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Protocol

import msgspec

from paceline.codec.encoded import Encoded, check_size
from paceline.core.errors import ProtocolError
from paceline.core.message import hints_of, name_of, named, scalar_fields, vector_fields
from paceline.core.parties.first_contact import PROTOCOL_VERSION, why_refused
from paceline.core.vector import Memory
from paceline.live.protocol.transport import Envelope, Kind

MAGIC = b"PACE"
VERSION = PROTOCOL_VERSION
PREFIX = struct.Struct("!4sBBHIQQ")
HEADER_BYTES_MAX = 64 * 1024
ITEM_BYTES = 4
STRIPED = 0x80
_KIND_AT = 5


SharedRef = tuple[int, int, int]
"""Where a vector lies that was not sent: segment, offset in bytes, number of the loan."""


class BufferSharer(Protocol):
    """Keeps vectors where they are for the other side to read."""

    def lend(self, v: Any) -> SharedRef | None: ...
    def over(self) -> tuple[int, ...]: ...


class VersionMismatch(ProtocolError):  # noqa: N818  names what was found
    """Is raised for a frame of another version of this protocol. Magic and version lie at the same place in all.

    theirs: the version of the other side.
    """

    def __init__(self, theirs: int) -> None:
        super().__init__(why_refused(theirs, VERSION))
        self.theirs = theirs


class Prefix(msgspec.Struct, frozen=True):
    kind: Kind
    slice: int
    header_bytes: int
    id: int
    body_bytes: int
    striped: bool


class Form(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of a vector that is encoded."""

    codec: str
    nbytes: int
    row: int
    base: int
    exact: int


class _Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str
    lengths: tuple[int, ...]
    scalars: msgspec.Raw
    places: tuple[SharedRef | None, ...] = ()
    over: tuple[int, ...] = ()
    forms: tuple[Form | None, ...] = ()
    server_view: int = 0


_KINDS = {int(kind): kind for kind in Kind}
_NOTHING = b"\xc0"
_NO_BYTES = memoryview(b"")
_BARE = b"\x90" * 3 + b"\x00"  # no places, no loans that are over, no forms; server view 0
_encode = msgspec.msgpack.Encoder().encode
_asdict = msgspec.structs.asdict
_decode_header = msgspec.msgpack.Decoder(_Header).decode


class MessageCodec(msgspec.Struct, frozen=True):
    """How one message class is encoded: its vectors as they are, its scalars as a typed array."""

    cls: type
    name: str
    vectors: tuple[str, ...]
    scalars: Callable[[Any], tuple[Any, ...]]
    decode: Callable[[bytes], Any]
    opening: bytes
    """Of the header of a message that has no vectors: all that comes before its scalars."""


@functools.cache
def codec_of(cls: Any) -> MessageCodec:
    hints = hints_of(cls)
    fields = [(name, hints[name]) for name in scalar_fields(cls)]
    struct_type = msgspec.defstruct(cls.__name__, fields, array_like=True, forbid_unknown_fields=True)
    decode = msgspec.msgpack.Decoder(struct_type).decode
    opening = _encode(_Header(name_of(cls), (), msgspec.Raw(_NOTHING)))[: -len(_NOTHING + _BARE)]
    return MessageCodec(cls, name_of(cls), vector_fields(cls), _values_of(scalar_fields(cls)), decode, opening)


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads these fields off a message; without a frame of Python where there are several."""
    return attrgetter(*names) if len(names) > 1 else lambda message: tuple([getattr(message, name) for name in names])


@functools.cache
def _codec_named(name: str) -> MessageCodec:
    """Raises KeyError; so whatever strangers call their messages, nothing is kept of it."""
    return codec_of(named(name))


def encode(envelope: Envelope, memory: Memory, lender: BufferSharer | None = None) -> list[memoryview]:
    """The buffers of a frame: one for prefix and header, one for each vector that is not lent. No vector is copied.

    Raises ProtocolError when the header is too long.
    """
    message = envelope.message
    codec = codec_of(type(message))  # type: ignore[arg-type]
    over = lender.over() if lender is not None else ()
    if not codec.vectors and not over and not envelope.server_view:
        return [memoryview(_head(envelope, codec, codec.opening + _encode(codec.scalars(message)) + _BARE, 0))]
    lengths: list[int] = []
    places: list[SharedRef | None] = []
    forms: list[Form | None] = []
    body: list[memoryview] = []
    size = lent = encoded = 0
    for name in codec.vectors:
        v = getattr(message, name)
        lengths.append(len(v))
        place = form = None
        if type(v) is Encoded:
            form, view = Form(v.codec, v.nbytes, v.row, v.base, v.exact), memoryview(v.data)
            encoded += 1
        elif lender is not None and (place := lender.lend(v)) is not None:
            view = _NO_BYTES
            lent += 1
        else:
            view = memory.bytes_of(v)
        places.append(place)
        forms.append(form)
        if view.nbytes:
            size += view.nbytes
            body.append(view)
    scalars, shared, view_number = codec.scalars(message), places if lent else (), envelope.server_view
    header = _encode((codec.name, lengths, scalars, shared, over, forms if encoded else (), view_number))
    return [memoryview(_head(envelope, codec, header, size)), *body]


def _head(envelope: Envelope, codec: MessageCodec, header: bytes, body_bytes: int) -> bytes:
    if len(header) > HEADER_BYTES_MAX:
        raise ProtocolError(f"the header of {codec.name} has {len(header)} bytes, more than {HEADER_BYTES_MAX}")
    return PREFIX.pack(MAGIC, VERSION, envelope.kind, envelope.slice, len(header), envelope.id, body_bytes) + header


def striped(head: memoryview) -> memoryview:
    """Prefix and header of a frame whose body goes over lanes."""
    changed = memoryview(bytearray(head))
    changed[_KIND_AT] |= STRIPED
    return changed


def version_notice() -> bytes:
    """Returns a prefix alone, which tells a caller of another version which one is spoken here."""
    return PREFIX.pack(MAGIC, VERSION, Kind.CONTROL, 0, 0, 0, 0)


def decode_prefix(data: bytes | memoryview, body_bytes_max: int, at: int = 0) -> Prefix:
    """Reads the prefix of the frame at `at`. Raises ProtocolError for anything but one of this protocol within the
    limits, and VersionMismatch for one of another version.
    """
    magic, version, kind, slice_, header_bytes, id, body_bytes = PREFIX.unpack_from(data, at)
    if magic != MAGIC:
        raise ProtocolError("the bytes are not a Paceline frame")
    if version != VERSION:
        raise VersionMismatch(version)
    if header_bytes > HEADER_BYTES_MAX:
        raise ProtocolError(f"the header has {header_bytes} bytes, the limit is {HEADER_BYTES_MAX}")
    if body_bytes > body_bytes_max:
        raise ProtocolError(f"the body has {body_bytes} bytes, the limit here is {body_bytes_max}")
    known = _KINDS.get(kind & ~STRIPED)
    if known is None:
        raise ProtocolError(f"the kind {kind} of a frame is unknown")
    return Prefix(known, slice_, header_bytes, id, body_bytes, kind >= STRIPED)


class Header(msgspec.Struct, frozen=True):
    """Of all vectors: `lengths`; `places` of those that are lent and `forms` of those that are encoded.

    Both have None for the others, and are empty when that is all there is.
    """

    codec: MessageCodec
    lengths: tuple[int, ...]
    scalars: Any
    places: tuple[SharedRef | None, ...]
    over: tuple[int, ...]
    forms: tuple[Form | None, ...]
    server_view: int


def decode_header(data: bytes | memoryview, body_bytes: int) -> Header:
    """Raises ProtocolError."""
    try:
        header = _decode_header(data)
        codec = _codec_named(header.name)
        scalars = codec.decode(header.scalars)
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the header cannot be read: {error}") from None
    lengths, places, forms = header.lengths, header.places, header.forms
    if (places and len(places) != len(lengths)) or (forms and len(forms) != len(lengths)):
        raise ProtocolError(f"{codec.name}: {len(places)} places and {len(forms)} forms for {len(lengths)} vectors")
    if not lengths and not codec.vectors and not body_bytes:
        return Header(
            codec, lengths, scalars, places, header.over, forms, header.server_view
        )  # the usual small message
    sent = 0
    if places or forms:
        for at, length in enumerate(lengths):
            sent += _bytes_sent(length, places[at] if places else None, forms[at] if forms else None)
    else:
        sent = ITEM_BYTES * sum(lengths)
    if len(lengths) != len(codec.vectors) or min(lengths, default=0) < 0 or sent != body_bytes:
        raise ProtocolError(f"{codec.name}: vectors of {list(lengths)} elements do not make {body_bytes} bytes")
    return Header(codec, lengths, scalars, places, header.over, forms, header.server_view)


def _bytes_sent(length: int, place: SharedRef | None, form: Form | None) -> int:
    """Returns the bytes of one vector. Raises ProtocolError if it is lent and encoded, and for too many bytes."""
    if form is None:
        return 0 if place else ITEM_BYTES * length
    if place:
        raise ProtocolError("an encoded vector has no place")
    check_size(length, form.nbytes)
    return form.nbytes


def assemble(codec: MessageCodec, scalars: Any, vectors: Sequence[Any]) -> Any:
    """Makes the message from its parts. Raises ProtocolError when the message itself refuses them."""
    fields = _asdict(scalars)
    names = codec.vectors
    if len(names) == len(vectors) == 1:
        fields[names[0]] = vectors[0]
    elif vectors or names:
        fields.update(zip(names, vectors, strict=True))
    try:
        return codec.cls(**fields)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"{codec.name}: {error}") from None
