"""Handles single values: they are read from a command line, taken from TOML, shown in a message.

    type               command line       TOML
    bool               true, no, 1        true, false
    int                3                  3 (not 3.0, not true)
    float              2, 0.5, 1e-3       2, 0.5
    tuple of floats    1,1,2,8            [1, 1, 2, 8]
    tuple of ints      96,32              [96, 32]
    str                as it is           as it is, without null characters

`parse` and `written` are each other's inverse; `convert` checks what either source gave.
"""

from __future__ import annotations

import math
from typing import Any, get_args

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""What counts as true or false on a command line, in lower case."""
LISTS = (tuple[float, ...], tuple[int, ...])
"""Types of lists of numbers."""


def parse(text: str, wanted: Any) -> Any:
    """Returns the value of type `wanted` in `text`. Raises ValueError for a text that stands for none.

    NaN and infinity pass here, since Python reads them as floats; `convert` refuses them.
    """
    if wanted is bool:
        if text.lower() not in _WORDS:
            raise ValueError(text)
        return _WORDS[text.lower()]
    if wanted is int or wanted is float:
        return wanted(text)
    if wanted in LISTS:
        return tuple(get_args(wanted)[0](part) for part in text.split(",")) if text.strip() else ()
    return text


def written(value: Any) -> str:
    """Returns the text from which `parse` makes `value` again."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def convert(value: Any, wanted: Any) -> Any:
    """Returns a value of TOML in the type `wanted`. Raises ValueError for others, NaN, infinity and null characters."""
    if wanted in LISTS:
        if not isinstance(value, list | tuple):
            raise ValueError(value)
        return tuple(convert(item, get_args(wanted)[0]) for item in value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        # A whole number of TOML may be too large for a float, and would raise OverflowError; as infinity it is refused
        # below.
        value = float(value) if abs(value) < 2**1000 else math.inf
    # In Python a bool is an int, but `workers = true` is a mistake.
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError(value)
    if (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, str) and "\0" in value):
        raise ValueError(value)
    return value


def shown(value: Any) -> str:
    """Returns `value` as a message of one line shows it: line breaks and control characters are escaped."""
    text = value if isinstance(value, str) else repr(value)
    return text if text.isprintable() else repr(text)


def one_line(text: str) -> str:
    """Returns `text`, a message with what a user wrote in it, with line breaks and control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def described(wanted: Any) -> str:
    """Returns the type in words, for an error message."""
    known = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    lists = {tuple[int, ...]: "whole numbers separated by commas"}
    return (known | lists).get(wanted, "numbers separated by commas")
