"""A state that somebody keeps for others, as published states: what JSON can say of it in one, and each of its vectors.

<whose>/state     the facts, and by what names there are vectors
<whose>/<name>    one of these
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from paceline.core.errors import PacelineError
from paceline.core.fault_tolerance.replication import SliceState
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE, PublishedState
from paceline.live.party import Party

VERSION, LOCK_STEP = "version", "lock-step"
CHECKPOINT, SNAPSHOT = "", "snapshot"
"""For whom something is kept: for the evaluator, or for a server that may have to be replaced."""
CAPTURE = "capture"  # under this name facts have the number of the capture that a state is of
FORGET = -1  # in place of a version
AHEAD = 2  # versions, before what is asked for is kept: in lock-step no server is further than one from another


def kept(whose: str, name: str) -> str:
    """By what name a kept vector is shown."""
    return f"{whose}/{name}"


def publish_state(facts: dict[str, Any], vectors: Iterable[str], nothing: Any) -> PublishedState:
    """`nothing`: an empty vector, for the place of one."""
    return PublishedState(v=nothing, facts=json.dumps({**facts, "vectors": sorted(vectors)}))


class Mixed(PacelineError):  # noqa: N818
    """Slices of more than one capture: put together they are no model that there ever was."""


def of_capture(state: SliceState, number: int) -> SliceState:
    """Returns the same, marked as of that capture."""
    return SliceState(state.vectors, {**state.facts, CAPTURE: number})


def check_one_capture(facts: Iterable[dict[str, Any]], number: int | None = None) -> None:
    """Raises Mixed unless all are of one capture: that of this number, if one is given."""
    numbers = {of.get(CAPTURE) for of in facts}
    if len(numbers) > 1 or (number is not None and numbers - {number}):
        raise Mixed(f"its slices are of captures {', '.join(sorted(map(str, numbers)))}, not all of one")


def fetch(node: Node, source: Party, slices: Sequence[int], whose: str) -> list[SliceState]:
    """What `source` shows of these slices. Raises PeerLost or TimedOut, and Mixed where they are not of one capture."""
    shown = node.read_several(source, [(kept(whose, STATE), at) for at in slices])
    facts: list[dict[str, Any]] = [json.loads(read_published.facts) for read_published in shown]
    check_one_capture(facts)
    # Each its own: a slice that has not been updated yet may have none of the optimizer's.
    wanted = [(kept(whose, name), at) for at, of in zip(slices, facts, strict=True) for name in of["vectors"]]
    found = iter(node.read_several(source, wanted))
    return [SliceState({name: next(found).v for name in of["vectors"]}, of) for of in facts]
