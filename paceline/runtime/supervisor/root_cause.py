"""Finds the root cause where several things went wrong in the same moment.

Example: server 0 is killed. Worker 1 reports "lost server 0" (LOST_ANOTHER), worker 2 an error (ERROR), and the
kernel reports the end of server 0 (ENDED). The user is told of the end of server 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.coordination.decisions import FailureKind
from paceline.runtime.supervisor.events import Failure

DISTANCE = {FailureKind.ENDED: 0, FailureKind.ERROR: 1, FailureKind.WAS_LOST: 2, FailureKind.LOST_ANOTHER: 2}
"""How far a kind of failure is from the root: a process that died explains the errors and the lost connections of
others."""


def root_of(failures: Sequence[Failure]) -> str:
    """Returns what the user is told of `failures`: the cause nearest to the root, with its details."""
    lost_others = {f.who for f in failures if f.kind is FailureKind.LOST_ANOTHER}  # their ends explain nothing

    def distance(failure: Failure) -> int:
        """Returns how far a failure is from the cause: a consequence of another one comes last."""
        return 2 if failure.who in lost_others else DISTANCE[failure.kind]

    ranked = sorted(failures, key=distance)
    root = ranked[0]
    details = next((f.details for f in ranked if f.who == root.who and f.details), "")
    own = next((f.cause for f in ranked if f.who == root.who and f.kind is FailureKind.ERROR), "")
    return "\n".join(part for part in (own or root.cause, details.rstrip()) if part)
