"""Says whether two workers train the same model in the same way, from what both reported."""

from __future__ import annotations

import json

from paceline.core.coordination import control_messages as control

NAMED_MAX = 100
"""Characters of what two workers say differently: they have sent the names themselves."""


def other_model(rank: int, ready: control.Ready, first: control.Ready) -> str:
    """Returns an error text if this worker trains another model than worker 0 reported; else nothing."""
    if (ready.fingerprint, ready.length) == (first.fingerprint, first.length):
        return ""
    others = _differences(ready.optimizer, first.optimizer)
    if ready.length == first.length and others:
        return (
            f"worker {rank} trains in another way than worker 0: its {', '.join(others)[:NAMED_MAX]} differ; "
            "all workers give paceline.join the same (`loaded`: a state, which all of them have or none)"
        )
    return (
        f"worker {rank} trains another model than worker 0 "
        f"({ready.length} against {first.length} parameters, or other names or shapes)"
    )


def _differences(recipe: str, first: str) -> list[str]:
    """Returns the names of what two recipes say differently; none where they cannot be compared."""
    try:
        mine, theirs = json.loads(recipe), json.loads(first)
        return sorted(name for name in mine if mine[name] != theirs.get(name))
    except (ValueError, AttributeError, TypeError, RecursionError):  # whatever a worker has sent
        return []
