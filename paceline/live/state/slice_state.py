"""Publishes and fetches the captured state of slices: facts as JSON, and each vector by itself.

    <whose>/state     the facts, and the names of the vectors
    <whose>/<name>    one of these vectors

States are captured at one version on all servers. Each bears the number of its capture, so slices of two captures are
never put together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.errors import PacelineError
from paceline.core.fault_tolerance.replication import SliceState
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE, PublishedState

VERSION, LOCK_STEP = "version", "lock-step"
CHECKPOINT, SNAPSHOT = "", "snapshot"
"""What a state is captured for: a checkpoint by the evaluator, or a snapshot to restore lost servers from."""
CAPTURE = "capture"  # under this name facts have the number of the capture that a state is of


def kept(whose: str, name: str) -> str:
    """Returns the name under which a captured vector is published."""
    return f"{whose}/{name}"


def publish_state(facts: dict[str, Any], vectors: Iterable[str], nothing: Any) -> PublishedState:
    """Returns the facts and names of a state, to publish. `nothing`: an empty vector."""
    return PublishedState(v=nothing, facts=json.dumps({**facts, "vectors": sorted(vectors)}))


class Mixed(PacelineError):  # noqa: N818
    """Is raised for slices of more than one capture, which together are no model that ever existed."""


def of_capture(state: SliceState, number: int) -> SliceState:
    """Returns the same, marked as of that capture."""
    return SliceState(state.vectors, {**state.facts, CAPTURE: number})


def check_one_capture(facts: Iterable[dict[str, Any]], number: int | None = None) -> None:
    """Raises Mixed unless all are of one capture: that of this number, if one is given."""
    numbers = {of.get(CAPTURE) for of in facts}
    if len(numbers) > 1 or (number is not None and numbers - {number}):
        raise Mixed(f"its slices are of captures {', '.join(sorted(map(str, numbers)))}, not all of one")


def fetch(node: Node, source: Party, slices: Sequence[int], whose: str) -> list[SliceState]:
    """Reads the state of these slices from `source`. Raises PeerLost, TimedOut, or Mixed if captures differ."""
    shown = node.read_several(source, [(kept(whose, STATE), at) for at in slices])
    facts: list[dict[str, Any]] = [json.loads(read_published.facts) for read_published in shown]
    check_one_capture(facts)
    # Each its own: a slice that has not been updated yet may have none of the optimizer's.
    wanted = [(kept(whose, name), at) for at, of in zip(slices, facts, strict=True) for name in of["vectors"]]
    found = iter(node.read_several(source, wanted))
    return [SliceState({name: next(found).v for name in of["vectors"]}, of) for of in facts]
