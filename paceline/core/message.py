"""Defines records and messages. A message is a record known by name, so that a driver can carry it as bytes.

A record is slotted, compared by value and never changed once it is made.

Fields whose annotation is `Vector` are cut into slices for the shards and joined in a reply; all other fields are
scalars and are copied:

    Push(g=[0 1 2 3 4 5], clock=7)
        shard 0  Push(g=[0 1 2], clock=7)
        shard 1  Push(g=[3 4 5], clock=7)

A message with a field `offset` carries a run of the model that begins at that element. Each shard gets the part of the
run that it holds, which may be empty:

    Run(g=[2 3], offset=2)
        shard 0  Run(g=[2], offset=2)
        shard 1  Run(g=[3], offset=2)
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Literal, TypeVar, dataclass_transform, get_type_hints

from paceline.core.vector import Memory, Vector

T = TypeVar("T")


class _Values(dict[type, Callable[[Any], tuple[Any, ...]]]):
    """Remembers by class a function that returns the values of a record, those that are compared."""

    def __missing__(self, cls: type) -> Callable[[Any], tuple[Any, ...]]:
        names = [field.name for field in dataclasses.fields(cls) if field.compare]
        one = attrgetter(*names[:1] or ("__class__",))
        found = self[cls] = attrgetter(*names) if len(names) > 1 else lambda record: (one(record),)
        return found


_values = _Values()


def _equal(self: Any, other: object) -> Any:
    """Returns True for a record of the same class with equal values."""
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _values[self.__class__]
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(_values[self.__class__](self))


@recursive_repr()
def _text(self: Any) -> str:
    """Returns the class with its fields, as a call that would make the record."""
    fields = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(fields)})"


def _made(cls: type[T], *, kw_only: bool = False) -> type[T]:
    """Makes a dataclass of the class.

    All records share three methods. A dataclass would have its own compiled for each class, and the 150 records of the
    package took a tenth of the time in which a command starts.
    """
    made = dataclasses.dataclass(slots=True, repr=False, eq=False, kw_only=kw_only)(cls)
    for name, method in (("__repr__", _text), ("__eq__", _equal), ("__hash__", _hash)):
        if name not in vars(cls):
            setattr(made, name, method)
    return made


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[T]) -> type[T]:
    """Class decorator: makes a slotted dataclass that is compared by value and never changed once it is made.

    The type checker and the conformance tests hold that nobody changes one. Python's own guard (`frozen=True`) sets
    every field by a call: a record took four times as long to make, and a driver does little else than make records.
    """
    return _made(cls)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def keyword_record(cls: type[T]) -> type[T]:
    """Class decorator: makes a `record` whose fields are given by name."""
    return _made(cls, kw_only=True)


Nature = Literal["increment", "state", "exact"]
"""What a vector is, by which codecs treat it: a sum that is added up, weights, or numbers that must stay exact."""
INCREMENT: Nature = "increment"
"""Vectors that are summed up: what a codec leaves out of one it may add to the next."""
STATE: Nature = "state"
"""Vectors each of which replaces the last, such as weights: the next one corrects an inexact one."""
EXACT: Nature = "exact"
"""Vectors that no codec may change."""

Plane = Literal["control", "scheme", "state", "collective", "connection"]
"""Part of the protocol that a message belongs to, which decides who may send it (`paceline.live.control.permissions`).

control: between the coordinator and everybody: who takes part, when training starts and ends, what is reported.
scheme: among workers, servers and the coordinator: the messages of the papers' boxes.
state: the state of a process, read or copied by another one without the scheme taking part.
collective: among workers that carry a mean themselves, and where they meet for it.
connection: between the two ends of one connection; no role ever sees it.
"""

_types: dict[str, type] = {}
_names: dict[type, str] = {}
_planes: dict[type, Plane] = {}


class _Names(dict[type, tuple[str, ...]]):
    """Remembers by class the names of the vector fields, or of all other fields."""

    def __init__(self, *, vectors: bool) -> None:
        super().__init__()
        self._vectors = vectors

    def __missing__(self, cls: type) -> tuple[str, ...]:
        hints = get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        found = self[cls] = tuple(name for name in names if (hints[name] is Vector) == self._vectors)
        return found


# Asked for with every message, so that only the first of a class costs a call of Python.
vector_fields: Callable[[type], tuple[str, ...]] = _Names(vectors=True).__getitem__
scalar_fields: Callable[[type], tuple[str, ...]] = _Names(vectors=False).__getitem__


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def message(name: str, *, plane: Plane = "scheme") -> Callable[[type[T]], type[T]]:
    """Class decorator: makes the class a message, called `name` on the wire, that only the senders of `plane` may send.

    Raises ValueError when another class has the name.
    """

    def register(cls: type[T]) -> type[T]:
        """Registers a class under its wire name. Raises ValueError where two messages have one name."""
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
    """Returns the plane that the message class belongs to, and so who may send it
    (`paceline.live.control.permissions`).
    """
    return _planes[cls]


def named(name: str) -> type:
    """Returns the message class of that name. Raises KeyError when there is none."""
    return _types[name]


def nature_of(cls: type) -> Nature:
    """Returns what kind of vectors this class carries: what its `carries` says, else EXACT. Codecs ask for it."""
    nature: Nature = getattr(cls, "carries", EXACT)
    return nature


def scatter(message: Any, shards: Sequence[slice]) -> list[Any]:
    """Returns the message that each shard gets: vectors are cut, scalars are copied.

    A vector as long as the model is cut where the shards are. Any other, such as a part of the model, is cut in
    proportion, so that no shard gets a piece longer than its own unless the vector is longer than the model. One that
    begins at the message's `offset` is cut where the shards are.
    """
    cls = type(message)
    fields = vector_fields(cls)
    if not fields or len(shards) == 1:
        return [message] * len(shards)
    values = {name: getattr(message, name) for name in scalar_fields(cls)}
    offset = values.get("offset")
    vectors = [(name, v, _places(v, shards, offset)) for name in fields for v in [getattr(message, name)]]
    parts = []
    for s in range(len(shards)):
        for name, v, at in vectors:
            values[name] = v[at[s]]
        parts.append(cls(**values))
    return parts


def _places(v: Any, shards: Sequence[slice], offset: int | None) -> Sequence[slice]:
    """Returns where to cut `v`: at the shards' edges, or at the same fractions of another length, rounded to the
    nearest. With an `offset`, v[0] is that element of the model.
    """
    length, total = len(v), shards[-1].stop
    if offset is not None:
        edges = [min(max(edge - offset, 0), length) for edge in (0, *(shard.stop for shard in shards))]
        return [slice(a, b) for a, b in itertools.pairwise(edges)]
    if length == total:
        return shards
    edges = [0, *((2 * shard.stop * length + total) // (2 * total) for shard in shards)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def gather(parts: Sequence[Any], memory: Memory) -> Any:
    """Returns one reply made of the shards' replies: vectors are joined, scalars are the smallest of all shards.

    Scalars that differ between shards are counts that grow (versions, clocks), so the minimum is what every shard has
    reached.
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
"""By message class, a function that returns the bytes of its vectors."""


def _measure(fields: tuple[str, ...]) -> Callable[[Any], int]:
    """Returns a function that counts the bytes of a message with these vectors.

    The common cases are an `attrgetter`, which costs no Python frame.
    """
    if not fields:
        return lambda message: 0
    if len(fields) == 1:
        return attrgetter(f"{fields[0]}.nbytes")
    each = attrgetter(*(f"{name}.nbytes" for name in fields))
    return lambda message: sum(each(message))
