"""These are the things that a role may ask its driver for.

A scheme never touches a socket, a clock or a model. It yields one of these values and is resumed with the result:

    effect     result               who carries it out
    Compute    Computed             the worker's training loop: forward and backward, no update
    Train      Trained              the worker's training loop and its own optimizer
    Call       the reply            the other side, whenever it chooses to answer: a barrier is a reply not yet given
    Tell       None, at once        the transport
    Reply      None, at once        the transport; it answers the oldest open Call of that worker
    Mean       Averaged             the servers, the workers among themselves, or torch.distributed
    Start      Ticket, at once      a Call or a Mean goes on in the background
    Wait       that of the Start    the driver

The set is closed on purpose, so that a driver is one `match` over it. Adding an effect takes a decision record and an
arm in every driver.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Any, Literal

from paceline.core.message import record
from paceline.core.spans import Spans
from paceline.core.vector import Vector, is_finite

SERVERS: Literal["servers"] = "servers"
"""The receiver of a message for all servers, each of which gets the part of its shard."""
COORDINATOR: Literal["coordinator"] = "coordinator"
"""The receiver of a message for the coordinator."""
Piece = tuple[int, int, int]
"""Samples of an epoch: the epoch's number, then the first place in its order and the place after the last."""
Data = tuple[Piece, ...]
To = int | Literal["servers", "coordinator"]
"""Whom a message goes to: every shard, the coordinator, or the worker of that rank."""


STREAMS = True
"""The last argument of an effect whose role may be resumed while its vectors are still arriving."""


@record
class Compute:
    """Asks for forward and backward of `steps` mini-batches, all at the weights `w`. The result is `Computed`.

    `samples`: the size of a mini-batch; None for the worker's own. `streams`: the role only passes the gradient on and
    does not look at the seconds, so it may be resumed while backward still runs. g is then a vector that is still
    arriving, and `seconds` is NaN.
    """

    w: Vector
    steps: int = 1
    samples: int | None = None
    streams: bool = field(default=False, compare=False)  # a hint, not part of what is asked for


@record
class Computed:
    """`g` is the mean gradient over all `samples` of the mini-batches; `seconds` is how long they took.

    data: which samples, where they are leased or drawn from a queue. unused: the spans of the model that none of the
    mini-batches has used.
    """

    g: Vector
    samples: int
    seconds: float
    data: Data = ()
    unused: Spans = field(default=(), compare=False)  # may be filled while the gradient is still arriving


KEEP: Literal["keep"] = "keep"
"""What becomes of a local optimizer's memory: it is kept, or forgotten (`RESET`)."""
RESET: Literal["reset"] = "reset"


def memory_after(x: Any, wanted: str = KEEP) -> str:
    """Returns what a local optimizer starts with after local steps that led to `x`, if `wanted` is what a scheme says.

    That is nothing where it would keep what it has and `x` is not finite: then neither is what it remembers.
    """
    return RESET if wanted == KEEP and not is_finite(x) else wanted


@record
class Train:
    """Asks for `steps` mini-batches of the worker's own optimizer, starting from `x`. The result is `Trained`.

    `memory`: what the optimizer remembers (momentum, Adam's moments) when it starts. KEEP leaves it what it has, RESET
    clears it; a vector that an earlier `Trained` gave, or the mean of several such, replaces it. `show_memory` asks for
    it in the result, which costs a copy.
    """

    x: Vector
    steps: int
    memory: Any = KEEP
    show_memory: bool = False


@record
class Trained:
    """`x` is the weights after the local steps; `samples` and `seconds` are summed over them.

    `memory`: the optimizer's memory as one vector, if it was asked for and there is any. `data`: as in `Computed`.
    """

    x: Vector
    samples: int
    seconds: float
    memory: Any = None
    data: Data = ()


@record
class Call:
    """Sends `message` and waits. The result is the reply, whenever the other side chooses to give it.

    `streams`: the role does not look at the reply's scalars. It may be resumed with the scalars of the first shard
    while the vectors of the others are still arriving.
    """

    to: To
    message: Any
    streams: bool = field(default=False, compare=False)  # a hint, not part of what is asked for


@record
class Tell:
    """Sends `message` and waits for nothing. The result is None, at once."""

    to: To
    message: Any


@record
class Reply:
    """Answers the oldest open `Call` of `to`. The result is None, at once."""

    to: int
    message: Any


EVERY_BIT = -1
"""The series of means that no codec may change."""


@record
class Mean:
    """Averages `v` over the ranks in `among`, weighted by `weight`; all of them have to come.

    The result is `paceline.core.collective.mean_server.Averaged`. `tag` tells one mean from the next; every member
    yields the same `among` and `tag`. The driver decides who carries it (servers, all-reduce, ...).

    series: successive means of the same quantity have the same number, so a codec may add what it left out of one to
    the next. EVERY_BIT marks a mean that no codec may touch.
    """

    v: Vector
    among: tuple[int, ...]
    tag: Hashable
    weight: float = 1.0
    series: int = 0


@record
class Start:
    """Begins a `Call` or `Mean` in the background. The result is a `Ticket`, at once."""

    effect: Call | Mean


class Ticket:
    """Stands for an effect under way: `Start` gives it and `Wait` takes it. Each driver has its own kind."""

    __slots__ = ()


@record
class Wait:
    """Waits for the effect that gave the ticket, and has its result."""

    ticket: Ticket


Effect = Compute | Train | Call | Tell | Reply | Mean | Start | Wait
"""Everything that a role may ask for; a new kind needs an arm in every driver."""
