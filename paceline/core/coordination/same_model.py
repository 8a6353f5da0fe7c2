"""Says whether two workers train the same model in the same way, from what both reported."""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Iterable

from paceline.core.coordination import control_messages as control

NAMED_MAX = 100
"""Characters of what two workers say differently: they have sent the names themselves."""
PACKED_MAX = 16 * 1024
"""Characters of a packed layout; what is beyond them is not named."""
LAYOUT_MAX = 1 << 20
"""Characters of a layout that is unpacked."""


def other_model(rank: int, ready: control.Ready, first: control.Ready) -> str:
    """Returns an error text if this worker trains another model than worker 0 reported; else nothing."""
    if (ready.fingerprint, ready.length) == (first.fingerprint, first.length):
        return ""
    difference = _first_difference(_unpacked(ready.layout), _unpacked(first.layout))
    others = _differences(ready.optimizer, first.optimizer)
    if ready.length == first.length and others and not difference:
        return (
            f"worker {rank} trains in another way than worker 0: its {', '.join(others)[:NAMED_MAX]} differ; "
            "all workers give paceline.join the same (`loaded`: a state, which all of them have or none)"
        )
    named = difference or "other names or shapes"
    return (
        f"worker {rank} trains another model than worker 0 ({ready.length} against {first.length} parameters; {named})"
    )


def other_moment(rank: int, ready: control.Ready, first: control.Ready) -> str:
    """Returns an error text if this worker has loaded a state of another round than worker 0; else nothing."""
    mine, theirs = _moment(ready.optimizer), _moment(first.optimizer)
    if mine == theirs:
        return ""
    return (
        f"join(state=...): worker {rank} goes on after round {mine} and worker 0 after round {theirs}: under such a "
        "scheme all workers save after as many exchanges; load files of one moment"
    )


def _moment(recipe: str) -> int:
    """Returns the round that a loaded state is of, 0 for none."""
    try:
        moment = json.loads(recipe).get("moment", 0)
    except (ValueError, AttributeError, RecursionError):  # whatever a worker has sent
        return 0
    return moment if isinstance(moment, int) else 0


# ---- layouts -----------------------------------------------------------------------------------------------------
def packed(lines: Iterable[str]) -> str:
    """Returns lines as a short text; names of layers are much alike, so thousands of them fit."""
    return base64.b85encode(zlib.compress("\n".join(lines).encode(), 9)).decode()[:PACKED_MAX]


def _unpacked(text: str) -> list[str]:
    """Returns the lines of a packed text, or those that it still has after it was cut; none of what is no such text."""
    try:
        cut = text[: len(text) // 5 * 5] if len(text) == PACKED_MAX else text
        lines = zlib.decompressobj().decompress(base64.b85decode(cut), LAYOUT_MAX).decode(errors="replace")
    except (ValueError, zlib.error):  # whatever a worker has sent
        return []
    return lines.split("\n")


def _first_difference(mine: list[str], theirs: list[str]) -> str:
    """Returns the first line in which two layouts differ, in words; "" where there is none."""
    if not mine or not theirs:
        return ""
    for own, other in itertools.zip_longest(mine, theirs, fillvalue="no more"):
        if own != other:
            return f"it has {_shown(own)} where worker 0 has {_shown(other)}"
    return ""


def _shown(line: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in line[:NAMED_MAX])


def _differences(recipe: str, first: str) -> list[str]:
    """Returns the names of what two recipes say differently; none where they cannot be compared."""
    try:
        mine, theirs = json.loads(recipe), json.loads(first)
        return sorted(name for name in mine if name not in ("begun", "moment") and mine[name] != theirs.get(name))
    except (ValueError, AttributeError, TypeError, RecursionError):  # whatever a worker has sent
        return []
