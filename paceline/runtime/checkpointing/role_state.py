"""Takes apart what a role keeps for a checkpoint (`Role.state`), and puts it together again.

facts      values that JSON can hold, by name
scales     by the name of a vector, the number that it is multiplied with, where that is not 1
vectors    tensors without that number: multiplied out they would be rounded, and what comes of them have other bits
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.core.role import Role
from paceline.engine.vectors.flat import Flat

Vectors = dict[str, Flat]


def is_vector(v: Any) -> bool:
    """Returns True for a vector, as against a value that JSON can hold."""
    return hasattr(v, "nbytes")


def unscaled(vectors: Mapping[str, Any]) -> tuple[Vectors, dict[str, float]]:
    """Returns the vectors without their scales, and these where they are not 1."""
    scales = {name: v.scale for name, v in vectors.items() if isinstance(v, Flat) and v.scale != 1.0}
    return {name: Flat.wrap(v.tensor) if name in scales else v for name, v in vectors.items()}, scales


def taken_apart(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the facts of a role's state, and its vectors."""
    vectors = {name: v for name, v in state.items() if is_vector(v)}
    return {name: v for name, v in state.items() if name not in vectors}, vectors


def load(role: Role, facts: Mapping[str, Any], vectors: Mapping[str, Tensor], scales: Mapping[str, float]) -> None:
    """Lets a role that has just been made go on from what was kept. Raises ConfigError for facts of another kind."""
    for name, fresh in role.state().items():
        if name in facts and not _alike(fresh, facts[name]):
            raise ConfigError(f"what {type(role).__qualname__} keeps is damaged: {name} is {facts[name]!r:.40}")
    found = {name: Flat.copy_of(v) * scales.get(name, 1.0) for name, v in vectors.items()}
    role.load_state({**facts, **found})


def _alike(fresh: Any, found: Any) -> bool:
    """Returns True if `found` can stand where `fresh` stands: a number for a number, a list for a list."""
    if is_vector(fresh) or isinstance(fresh, str):
        return isinstance(found, str)  # such as `keep` in place of a vector
    if isinstance(fresh, list | tuple):
        alike = isinstance(found, list | tuple) and len(found) == len(fresh)
        return alike and all(map(_alike, fresh, found))
    return isinstance(found, int | float)
