"""Reads JSON that somebody else may have written within limits, or refuses it in one line.

`json.loads` takes NaN, infinities, numbers that overflow to them, names that come twice and lone surrogates. All that
has gone through `decoded` can be written down again as JSON and as UTF-8.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

DEPTH_MAX = 32
"""Levels of lists and objects within one another."""
VALUES_MAX = 1 << 20
"""Values in all, names of objects included."""
DIGITS_MAX = 40
"""Characters of a whole number; turning a text of n digits into a number takes time by n squared."""


def decoded(data: bytes) -> Any:
    """Returns the value. Raises ValueError, whose text is short and quotes nothing of `data`."""
    try:
        found = json.loads(
            data.decode(), parse_constant=_refused, parse_float=_finite, parse_int=_whole, object_pairs_hook=_once
        )
    except RecursionError:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (character {error.pos})") from None
    _measure(found)
    return found


def _refused(name: str) -> NoReturn:
    """Raises ValueError for NaN and the infinities, which JSON does not have and Python reads."""
    raise ValueError(f"{name} is not allowed")


def _finite(text: str) -> float:
    """Returns a float. Raises ValueError for one such as 1e999, which Python reads as infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large to be finite")
    return number


def _whole(text: str) -> int:
    """Returns a whole number. Raises ValueError for one with more than DIGITS_MAX characters."""
    if len(text) > DIGITS_MAX:
        raise ValueError(f"a number has more than {DIGITS_MAX} digits")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object as a dict. Raises ValueError where a name comes twice, of which Python keeps the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _measure(found: Any) -> None:
    """Looks at all values level by level, without recursion, so that no depth ends the process. Raises ValueError."""
    level, seen = [found], 0
    for _ in range(DEPTH_MAX):
        seen += len(level)
        if seen > VALUES_MAX:
            raise ValueError(f"more than {VALUES_MAX} values")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not value.isascii():
                _whole_characters(value)
        if not below:
            return
        level = below
    raise ValueError(f"nested deeper than {DEPTH_MAX} levels")


def _whole_characters(text: str) -> None:
    """Raises ValueError for half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair") from None
