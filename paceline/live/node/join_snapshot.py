"""A worker that joins late takes over this state of another one's role. It can be sent, and is of one moment."""

from __future__ import annotations

import json
from typing import Any

from paceline.core.role import Role
from paceline.core.vector import Memory
from paceline.live.node.published_state import PublishedState


def picture(role: Role | None, memory: Memory) -> PublishedState:
    """Returns what a newcomer takes over from a role; without facts where there is no role yet.

    A role shows one vector at most; everything else has to be JSON.
    """
    shown = {} if role is None else role.join_state()
    name = next((name for name, value in shown.items() if hasattr(value, "nbytes")), "")
    v = shown.pop(name) if name else memory.empty(0)
    return PublishedState(v=v, facts="" if role is None else json.dumps({"vector": name, "shown": shown}))


def published_by(read_published: PublishedState) -> dict[str, Any] | None:
    """Returns what a role has shown, or None where there was no role yet."""
    if not read_published.facts:
        return None
    facts = json.loads(read_published.facts)
    shown: dict[str, Any] = facts["shown"]
    return {**shown, facts["vector"]: read_published.v} if facts["vector"] else shown
