"""Registers what can be chosen by name: schemes and codecs."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from paceline.core.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """Knows the classes of one `kind` by name; each is a frozen dataclass with the attributes `name`, `summary` and
    `paper`.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._classes: dict[str, type[T]] = {}

    def enter(self, cls: Any, name: str, summary: str, paper: Any) -> Any:
        """Makes `cls` a frozen keyword-only dataclass, registers it under `name` and returns it."""
        made = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        made.name, made.summary, made.paper = name, summary, paper
        self._classes[name] = made
        return made

    def names(self) -> list[str]:
        """Returns all names, in order."""
        return sorted(self._classes)

    def lookup(self, name: str, *besides: str) -> type[T]:
        """Returns the class of that name.

        Raises ConfigError with the nearest name, of those here and `besides`, if there is none.
        """
        if name not in self._classes:
            raise ConfigError(f"unknown {self._kind} {name!r}{nearest(name, [*besides, *self.names()])}")
        return self._classes[name]


def nearest(word: str, known: Iterable[str], *, listed: bool = False) -> str:
    """Returns the end of an error message: `; did you mean 'x'?`, or all known names.

    `listed`: the message has listed the known names already.
    """
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are: {', '.join(known)}" if known and not listed else ""
