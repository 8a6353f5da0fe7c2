"""From whom a newcomer takes over its state: rounds, clocks, and the model where all workers hold the same.

    who holds the model      taken over from
    servers, or each worker  the worker that is least far: nobody then waits for steps that the newcomer never made
    all workers, the same    the one in the middle, of two the one that is less far

Workers that hold the same model meet in each mean, so all are in one round or the next, and a newcomer gets the result
of a mean that closed without it. One that is further behind or ahead has itself just come, or lies about its rounds:
a newcomer that took over from it would ask for means that nobody remembers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.core.role import Role
from paceline.core.scheme import ModelOf

Shown = Mapping[str, Any]
"""The join state of a worker (`Role.join_state`)."""


def taken_over(seen: Sequence[tuple[int, Shown]], model_of: ModelOf) -> int:
    """Returns the rank of the worker to take over from; `seen`: rank and join state of those that train, in any order.

    Among equals it is the first one. Raises ValueError if nobody trains.
    """
    if not seen:
        raise ValueError("nobody trains from whom a newcomer could take over")
    by_progress = sorted(seen, key=lambda one: Role.progress_key(one[1]))
    middle = (len(seen) - 1) // 2 if model_of == "any worker" else 0
    return by_progress[middle][0]
