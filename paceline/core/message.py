"""Records, and messages: records that are known by name, so that a driver can carry them as bytes.

A record is slotted, compared by value and never changed once it is made.

Fields whose annotation is `Vector` are cut into slices for the shards and joined in a reply; everything else
is a scalar and is copied.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal, TypeVar, dataclass_transform, get_type_hints

from paceline.core.vector import Memory, Vector

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[T]) -> type[T]:
    """Class decorator: a slotted dataclass that is compared by value and never changed once it is made.

    That nobody changes one is for the type checker to say, and for the conformance tests to watch. Python's own guard
    (`frozen=True`) sets every field by a call: a record took four times as long to make, and a driver carries out
    little else.
    """
    return dataclasses.dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def keyword_record(cls: type[T]) -> type[T]:
    """A record whose fields are given by name."""
    return dataclasses.dataclass(slots=True, unsafe_hash=True, kw_only=True)(cls)


Nature = Literal["increment", "state", "exact"]
INCREMENT: Nature = "increment"
"""Vectors that are summed up: what is left out of one may be added to the next."""
STATE: Nature = "state"
"""Vectors each of which replaces the last, such as weights: one that is a little off is followed by a better one."""
EXACT: Nature = "exact"
"""Vectors of which every bit counts."""

Plane = Literal["control", "scheme", "state", "collective", "connection"]
"""What a message is part of, which decides who may send it (`paceline.live.control.permissions`).

control: between the coordinator and everybody: who takes part, when training starts and ends, what is reported.
scheme: among workers, servers and the coordinator: the messages of the papers' boxes.
state: what a process holds, read by another one past the scheme, and copies of it.
collective: among workers that carry a mean themselves, and where they meet for it.
connection: between the two ends of one connection; no role ever sees it.
"""

_types: dict[str, type] = {}
_names: dict[type, str] = {}
_planes: dict[type, Plane] = {}


class _Fields(dict[type, tuple[str, ...]]):
    """Names of the fields by class; of vectors, or of all else."""

    def __init__(self, *, vectors: bool) -> None:
        super().__init__()
        self._vectors = vectors

    def __missing__(self, cls: type) -> tuple[str, ...]:
        hints = get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        found = self[cls] = tuple(name for name in names if (hints[name] is Vector) == self._vectors)
        return found


# Asked for with every message, so that only the first of a class costs a call of Python.
vector_fields: Callable[[type], tuple[str, ...]] = _Fields(vectors=True).__getitem__
scalar_fields: Callable[[type], tuple[str, ...]] = _Fields(vectors=False).__getitem__


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def message(name: str, *, plane: Plane = "scheme") -> Callable[[type[T]], type[T]]:
    """Class decorator: make the class a message, called `name` on the wire, that only the senders of `plane` may send.

    Raises ValueError when another class has the name.
    """

    def register(cls: type[T]) -> type[T]:
        if name in _types:
            raise ValueError(f"two messages are called {name}")
        made = keyword_record(cls)
        _types[name], _names[made], _planes[made] = made, name, plane
        return made

    return register


def name_of(cls: type) -> str:
    """Returns what the message class is called on the wire."""
    return _names[cls]


def plane_of(cls: type) -> Plane:
    """Which plane the message class belongs to, and so who may send it (`paceline.live.control.permissions`)."""
    return _planes[cls]


def named(name: str) -> type:
    """The message class of that name. Raises KeyError when there is none."""
    return _types[name]


def nature_of(cls: type) -> Nature:
    """What the vectors of this class are, for whoever would rather send less: as its `carries` says, else EXACT."""
    nature: Nature = getattr(cls, "carries", EXACT)
    return nature


def scatter(message: Any, shards: Sequence[slice]) -> list[Any]:
    """The message each shard gets: vectors cut, scalars copied.

    A vector that is as long as the model is cut where the shards are; any other, such as a part of the model, in
    proportion, so that no shard gets a piece that is longer than its own unless the vector is longer than the model.
    """
    cls = type(message)
    fields = vector_fields(cls)
    if not fields or len(shards) == 1:
        return [message] * len(shards)
    values = {name: getattr(message, name) for name in scalar_fields(cls)}
    vectors = [(name, v, _places(v, shards)) for name in fields for v in [getattr(message, name)]]
    parts = []
    for s in range(len(shards)):
        for name, v, at in vectors:
            values[name] = v[at[s]]
        parts.append(cls(**values))
    return parts


def _places(v: Any, shards: Sequence[slice]) -> Sequence[slice]:
    length, total = len(v), shards[-1].stop
    if length == total:
        return shards
    edges = [0, *((2 * shard.stop * length + total) // (2 * total) for shard in shards)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def gather(parts: Sequence[Any], memory: Memory) -> Any:
    """One reply from the shards' replies: vectors joined, scalars from the shard that is furthest behind.

    Scalars that differ between shards are counts that grow (versions, clocks), so the minimum is what every
    shard has reached.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    cls = type(first)
    joined = {name: memory.join([*map(attrgetter(name), parts)]) for name in vector_fields(cls)}
    for name in scalar_fields(cls):
        joined[name] = min(map(attrgetter(name), parts))
    return cls(**joined)


def size(message: Any) -> int:
    """Returns the bytes of its vectors."""
    return measures[type(message)](message)


class _Measures(dict[type, Callable[[Any], int]]):
    def __missing__(self, cls: type) -> Callable[[Any], int]:
        measure = self[cls] = _measure(vector_fields(cls))
        return measure


measures = _Measures()
"""What gives the bytes of the vectors of a message, by its class."""


def _measure(fields: tuple[str, ...]) -> Callable[[Any], int]:
    """How the bytes of a message with these vectors are counted; the common cases without a frame of Python."""
    if not fields:
        return lambda message: 0
    if len(fields) == 1:
        return attrgetter(f"{fields[0]}.nbytes")
    each = attrgetter(*(f"{name}.nbytes" for name in fields))
    return lambda message: sum(each(message))
