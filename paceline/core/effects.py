"""What a role may ask its driver for.

A scheme never touches a socket, a clock or a model: it yields one of these values and is resumed with the
result. The set is closed on purpose, so that a driver is one `match` over it; adding an effect takes a decision
record and an arm in every driver.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

from paceline.core.vector import Vector

SERVERS: Literal["servers"] = "servers"
COORDINATOR: Literal["coordinator"] = "coordinator"
To = int | Literal["servers", "coordinator"]
"""Whom a message goes to: every shard, the coordinator, or the worker of that rank."""


@dataclass(frozen=True, slots=True)
class Compute:
    """One mini-batch forward and backward at `w`. Result: `Computed`."""

    w: Vector


@dataclass(frozen=True, slots=True)
class Computed:
    """`g`: mean gradient over the batch; `samples`: its size; `seconds`: how long it took."""

    g: Vector
    samples: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Train:
    """`steps` mini-batches of the worker's own optimizer, starting from `x`. Result: `Trained`."""

    x: Vector
    steps: int


@dataclass(frozen=True, slots=True)
class Trained:
    """`x`: the weights after the local steps; `samples` and `seconds`: summed over them."""

    x: Vector
    samples: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """Send `message` and wait. Result: the reply, whenever the other side chooses to give it."""

    to: To
    message: Any


@dataclass(frozen=True, slots=True)
class Tell:
    """Send `message`. Result: None, at once."""

    to: To
    message: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the oldest open `Call` of `to`. Result: None, at once."""

    to: int
    message: Any


@dataclass(frozen=True, slots=True)
class Mean:
    """Average of `v` over the ranks in `among`, weighted by `weight`; a rendezvous of equals.

    Result: `paceline.core.mean.Averaged`. `tag` tells one rendezvous from the next; every member yields the
    same `among` and `tag`. Who carries it (servers, all-reduce, ...) is the driver's affair.
    """

    v: Vector
    among: tuple[int, ...]
    tag: Hashable
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a `Call` or `Mean` in the background. Result: a `Ticket`, at once."""

    effect: Call | Mean


class Ticket:
    """What `Start` gives and `Wait` takes; each driver has its own kind."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Result: that of the effect which gave the ticket."""

    ticket: Ticket


Effect = Compute | Train | Call | Tell | Reply | Mean | Start | Wait
