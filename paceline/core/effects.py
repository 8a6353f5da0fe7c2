"""What a role may ask its driver for.

A scheme never touches a socket, a clock or a model: it yields one of these values and is resumed with the
result. The set is closed on purpose, so that a driver is one `match` over it; adding an effect takes a decision
record and an arm in every driver.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Any, Literal

from paceline.core.message import record
from paceline.core.spans import Spans
from paceline.core.vector import Vector

SERVERS: Literal["servers"] = "servers"
COORDINATOR: Literal["coordinator"] = "coordinator"
Piece = tuple[int, int, int]
"""Samples of an epoch: its number, and the places in its order from which to which (without it)."""
Data = tuple[Piece, ...]
To = int | Literal["servers", "coordinator"]
"""Whom a message goes to: every shard, the coordinator, or the worker of that rank."""


STREAMS = True
"""The last argument of an effect whose box can do with vectors that are still arriving."""


@record
class Compute:
    """Forward and backward of `steps` mini-batches, all at `w`. Result: `Computed`.

    `samples`: the size of a mini-batch; None for the worker's own. `streams`: the box only hands the gradient on and
    does not look at the seconds, so it may be resumed while backward still runs: g is then a vector that is still
    arriving, and `seconds` is NaN.
    """

    w: Vector
    steps: int = 1
    samples: int | None = None
    streams: bool = field(default=False, compare=False)  # a hint, not part of what is asked for


@record
class Computed:
    """`g`: mean gradient over all `samples` of the mini-batches; `seconds`: how long they took.

    data: which samples, where they are leased. unused: what of the model none of the mini-batches has used.
    """

    g: Vector
    samples: int
    seconds: float
    data: Data = ()
    unused: Spans = field(default=(), compare=False)  # may be filled while the gradient is still arriving


KEEP: Literal["keep"] = "keep"
RESET: Literal["reset"] = "reset"


@record
class Train:
    """`steps` mini-batches of the worker's own optimizer, starting from `x`. Result: `Trained`.

    `memory`: what the optimizer remembers (momentum, Adam's moments) when it starts: KEEP what it has, RESET to
    nothing, or a vector that an earlier `Trained` gave, or the mean of several such. `show_memory` asks for it
    in the result; it costs a copy.
    """

    x: Vector
    steps: int
    memory: Any = KEEP
    show_memory: bool = False


@record
class Trained:
    """`x`: the weights after the local steps; `samples` and `seconds`: summed over them.

    `memory`: that of the optimizer as one vector, if it was asked for and there is any. `data` as in `Computed`.
    """

    x: Vector
    samples: int
    seconds: float
    memory: Any = None
    data: Data = ()


@record
class Call:
    """Send `message` and wait. Result: the reply, whenever the other side chooses to give it.

    `streams`: the box does not look at the reply's scalars, so it may be resumed with the first shard's while the
    vectors of the others are still arriving.
    """

    to: To
    message: Any
    streams: bool = field(default=False, compare=False)  # a hint, not part of what is asked for


@record
class Tell:
    """Send `message`. Result: None, at once."""

    to: To
    message: Any


@record
class Reply:
    """Answer the oldest open `Call` of `to`. Result: None, at once."""

    to: int
    message: Any


EVERY_BIT = -1
"""The series of means whose numbers are needed as they are."""


@record
class Mean:
    """Average of `v` over the ranks in `among`, weighted by `weight`; a rendezvous of equals.

    Result: `paceline.core.collective.mean_server.Averaged`. `tag` tells one rendezvous from the next; every member
    yields the same `among` and `tag`. Who carries it (servers, all-reduce, ...) is the driver's affair.

    series: means of one thing, one after the other, have one number: what a codec leaves out of one it may add to the
    next. EVERY_BIT for a mean that no codec may touch.
    """

    v: Vector
    among: tuple[int, ...]
    tag: Hashable
    weight: float = 1.0
    series: int = 0


@record
class Start:
    """Begin a `Call` or `Mean` in the background. Result: a `Ticket`, at once."""

    effect: Call | Mean


class Ticket:
    """What `Start` gives and `Wait` takes; each driver has its own kind."""

    __slots__ = ()


@record
class Wait:
    """Result: that of the effect which gave the ticket."""

    ticket: Ticket


Effect = Compute | Train | Call | Tell | Reply | Mean | Start | Wait
