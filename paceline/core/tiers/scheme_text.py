"""Reads the scheme of one tier from text: `bsp`, or with parameters `localsgd(tau=4)`."""

from __future__ import annotations

import re
from typing import Any

from paceline.core.parameter_syntax import parameters_in
from paceline.core.scheme import lookup, types_of

_NAMED = re.compile(r"\s*(?P<name>[\w-]+)\s*(?:\((?P<in>.*)\))?\s*")


def parse_tier(text: str) -> tuple[str, dict[str, Any]]:
    """Returns `("localsgd", {"tau": 4})` for `localsgd(tau=4)`.

    Raises ValueError for what cannot be read, for an unknown parameter, and ConfigError for an unknown scheme.
    """
    found = _NAMED.fullmatch(text)
    if found is None:
        raise ValueError("write a scheme, as 'bsp' or 'localsgd(tau=4)'")
    name = found["name"]
    return name, parameters_in(found["in"] or "", f"scheme {name}", types_of(lookup(name)))
