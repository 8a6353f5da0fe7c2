"""Turns messages, inputs and decisions into JSON values and messages back, for recordings that people can read.

    message       {"control.Progress": {"steps": 3, ...}}
    a vector      "[1200]": its length; numbers of a model are never recorded
    decision      [{"SendMessage": {"to": ["worker 0"], "message": {...}}}, ...]

Two values are equal if their `json_of` is: NaN equals NaN, and a tuple a list.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from paceline.core.errors import ConfigError
from paceline.core.message import name_of, named, plane_of, scalar_fields, vector_fields
from paceline.core.role import Role
from paceline.core.trace import Record, to_dict
from paceline.live.coordinator.decisions import Action, WriteRecord
from paceline.live.party import Party
from paceline.live.protocol.transport import Envelope, Kind

json_of = json.JSONEncoder(separators=(",", ":")).encode


def plain(value: Any) -> Any:
    """Returns `value` as JSON values. Raises TypeError for what has no such form."""
    if isinstance(value, Party):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, Record):
        return to_dict(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Role):
        return type(value).__qualname__
    if isinstance(value, Envelope):
        return envelope_text(value)
    if isinstance(value, BaseException):
        return str(value) or repr(value)
    if dataclasses.is_dataclass(value) and _is_message(type(value)):
        return message_text(value)
    if isinstance(value, msgspec.Struct):
        return {field: plain(getattr(value, field)) for field in value.__struct_fields__}
    return msgspec.to_builtins(value)


def _is_message(cls: type) -> bool:
    try:
        name_of(cls)
    except KeyError:
        return False
    return True


def message_text(message: Any) -> dict[str, Any]:
    """Returns a message as its name and fields. Of vectors only the lengths are kept, and of read state nothing."""
    cls = type(message)
    if plane_of(cls) == "state":
        return {name_of(cls): {}}
    if not vector_fields(cls):
        return {name_of(cls): msgspec.to_builtins(message)}
    fields: dict[str, Any] = {name: plain(getattr(message, name)) for name in scalar_fields(cls)}
    return {name_of(cls): fields | {name: f"[{len(getattr(message, name))}]" for name in vector_fields(cls)}}


def message_of(text: dict[str, Any]) -> Any:
    """Does the inverse of `message_text`, for messages without vectors.

    Raises ConfigError for a message that this version does not have, or that has other fields here.
    """
    ((name, fields),) = text.items()
    try:
        return msgspec.convert(fields, named(name))
    except (KeyError, msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"the message {name} cannot be read by this version of Paceline: {error}") from None


def envelope_text(envelope: Envelope) -> dict[str, Any]:
    """Returns a message, and of its envelope what differs from a message of the control plane."""
    text = message_text(envelope.message)
    if envelope.kind != Kind.CONTROL:
        text["kind"] = envelope.kind.name
    for name in ("id", "slice", "server_view"):
        if value := getattr(envelope, name):
            text[name] = value
    return text


def envelope_of(text: dict[str, Any]) -> Envelope:
    """Does the inverse of `envelope_text`. Raises ConfigError."""
    rest = dict(text)
    kind, numbers = Kind[rest.pop("kind", "CONTROL")], [rest.pop(name, 0) for name in ("id", "slice", "server_view")]
    return Envelope(kind, message_of(rest), *numbers)


def is_whole(text: dict[str, Any]) -> bool:
    """Returns True if the message can be made again from its text: it has no vectors, and is no state that was read.

    Raises ConfigError for a message that this version does not have.
    """
    name = next(iter(text))
    try:
        cls = named(name)
    except KeyError:
        raise ConfigError(f"this version of Paceline has no message {name}") from None
    return plane_of(cls) != "state" and not vector_fields(cls)


def actions_text(actions: Iterable[Action], *, folds_records: bool) -> list[Any]:
    """Returns the actions of a decision, in their order.

    folds_records: trace records become their number and checksum, since the input has them already.
    """
    texts: list[Any] = []
    folded: list[Record] = []
    for action in actions:
        if folds_records and isinstance(action, WriteRecord):
            folded.append(action.record)
            continue
        texts += _records(folded)
        folded = []
        texts.append({type(action).__name__: plain(action)})
    return texts + _records(folded)


def _records(records: Sequence[Record]) -> list[Any]:
    if not records:
        return []
    checksum = zlib.crc32(json_of([to_dict(record) for record in records]).encode())
    return [{"WriteRecord": {"records": len(records), "crc32": checksum}}]
