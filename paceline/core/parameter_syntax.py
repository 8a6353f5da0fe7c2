"""Reads and writes parameters as text: the inside of `ssp(staleness=2)`.

A value with `;`, `,` or `)` in it stands in double quotes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from paceline.core.registry import nearest

_PARAMETER = re.compile(r'\s*(?P<key>\w+)\s*=\s*(?P<value>"[^"]*"|[^,"]+?)\s*(?:,|$)')


def parameters_in(text: str, what: str, known: Mapping[str, type]) -> dict[str, Any]:
    """Returns the values in `text` by key. `what` has parameters of the types in `known`: `scheme ssp`.

    Raises ValueError, with the way out, for what cannot be read, for an unknown key and for a value of another type.
    """
    values, at = {}, 0
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None:
            name = what.rpartition(" ")[2]
            raise ValueError(f"cannot read {text[at:].strip()!r}; write parameters as '{name}(key=value, key=value)'")
        if found["key"] not in known:
            raise ValueError(f"{what} has no parameter {found['key']!r}{nearest(found['key'], known)}")
        values[found["key"]] = _value(found["key"], found["value"], known[found["key"]])
        at = found.end()
    return values


def _value(key: str, text: str, wanted: type) -> Any:
    """Returns a parameter of type `wanted`. Raises ValueError for a text that is none."""
    if wanted is str:
        return text.strip('"')
    try:
        value = json.loads(text.lower())
    except json.JSONDecodeError:
        value = None
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        raise ValueError(f"{key} = {text}: must be {wanted.__name__}")
    return value


def shown(value: Any) -> str:
    """Returns `value` as it is written inside the parentheses."""
    if isinstance(value, str):
        return f'"{value}"' if re.search(r"[;,()\s]", value) else value
    return str(value).lower() if isinstance(value, bool) else repr(value)


def with_parameters(name: str, values: Mapping[str, Any]) -> str:
    """Returns the text `name(key=value, key=value)`."""
    inside = ", ".join(f"{key}={shown(value)}" for key, value in values.items())
    return name + (f"({inside})" if inside else "")
