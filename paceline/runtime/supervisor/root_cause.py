"""What is a failure, and why a run failed where several things went wrong in the same moment."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.runtime.supervisor.events import Failure


def root_of(failures: Sequence[Failure]) -> str:
    """What to say of them all: a process that died explains the connections that others lost."""
    # Who ended because another did; of one that was lost itself, others say so in its name.
    lost_others = {f.who for f in failures if f.rank == 2 and f"lost {f.who}" not in f.cause}
    ranked = sorted(failures, key=lambda failure: 2 if failure.who in lost_others else failure.rank)
    root = ranked[0]
    details = next((f.details for f in ranked if f.who == root.who and f.details), "")
    own = next((f.cause for f in ranked if f.who == root.who and f.rank == 1), "")
    return "\n".join(part for part in (own or root.cause, details.rstrip()) if part)
