"""Records: what effects, messages and results are made of."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, dataclass_transform

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
