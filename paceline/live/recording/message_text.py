"""Turns messages, inputs and decisions into JSON values and messages back, for recordings that people can read.

message       {"control.Progress": {"steps": 3, ...}}
a vector      "[1200]": its length; numbers of a model are never recorded
decision      [{"SendMessage": {"to": ["worker 0"], "message": {...}}}, ...]
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from paceline.core.coordination.decisions import Action, WriteRecord
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.core.message import name_of, named, plane_of, scalar_fields, vector_fields
from paceline.core.role import Role
from paceline.core.trace import Record, to_dict
from paceline.live.protocol.transport import Envelope, Kind

json_of = json.JSONEncoder(separators=(",", ":")).encode


def same(one: Any, other: Any) -> bool:
    """Returns True if two JSON values are equal. NaN equals NaN, a tuple a list, and 0 equals 0.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (one != one and other != other)


def plain(value: Any) -> Any:
    """Returns `value` as JSON values. Raises TypeError for what has no such form."""
    return _forms[type(value)](value)


class _Forms(dict[type, Callable[[Any], Any]]):
    """Remembers by class the function that makes JSON values of values of this class."""

    def __missing__(self, cls: type) -> Callable[[Any], Any]:
        form = self[cls] = _form_of(cls)
        return form


_forms = _Forms()


def _form_of(cls: type) -> Callable[[Any], Any]:
    if issubclass(cls, Party | str):
        return str
    if issubclass(cls, tuple | list):
        return lambda value: [plain(one) for one in value]
    if issubclass(cls, Record):
        return to_dict
    if issubclass(cls, enum.Enum):
        return lambda value: value.name
    if issubclass(cls, Role):
        return lambda value: cls.__qualname__
    if issubclass(cls, Envelope):
        return envelope_text
    if issubclass(cls, BaseException):
        return lambda value: str(value) or repr(value)
    if _is_message(cls):
        return message_text
    if dataclasses.is_dataclass(cls):  # an action
        names = [field.name for field in dataclasses.fields(cls)]
        return lambda value: {name: plain(getattr(value, name)) for name in names}
    return msgspec.to_builtins


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


def raised(error: BaseException) -> dict[str, str]:
    """Returns the output that stands for an exception of a machine."""
    return {"Raised": f"{type(error).__name__}: {error}"}


def actions_text(actions: Iterable[Action], *, folds_records: bool) -> list[Any]:
    """Returns the actions of a decision, in their order.

    folds_records: of trace records in a row only the number is kept, since the input has them already.
    """
    texts: list[Any] = []
    for action in actions:
        if not (folds_records and isinstance(action, WriteRecord)):
            texts.append({type(action).__name__: plain(action)})
        elif texts and "WriteRecords" in texts[-1]:
            texts[-1]["WriteRecords"]["number"] += 1
        else:
            texts.append({"WriteRecords": {"number": 1}})
    return texts
