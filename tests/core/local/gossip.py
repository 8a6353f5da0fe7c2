"""A worker of gossip, driven by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.core.local.push_sum import Holder, Share
from paceline.core.role import RoleContext
from paceline.core.scheme import make


def worker(me: int = 0, workers: int = 3, **parameters: Any) -> Holder:
    place = RoleContext(me=me, workers=tuple(range(workers)), w=np.zeros(1), update=lambda w, g, n: w - g)
    role = make("gosgd", parameters).worker(0)(make("gosgd", parameters), place)
    assert isinstance(role, Holder)
    return role


def share(w: float, weight: float) -> Share:
    return Share(w=np.array([w]), weight=weight)


def hear(role: Holder, src: int, message: Any) -> list[Any]:
    return list(role.on(0.0, src, message))
