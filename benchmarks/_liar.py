"""A worker that lies: in one field of what it sends, or by messages that it would not send by itself.

Whoever has this folder in PYTHONPATH as `sitecustomize` (`benchmarks/liars.py` does that) and PACELINE_LIE in the
environment, such as `3 Push.samples`, has a worker 3 that lies in that field from its HONEST-th push on.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
from typing import Any, get_args, get_origin, get_type_hints

HONEST = 8
VALUES: dict[type, list[Any]] = {
    int: [10**9, -(10**9), 2**60, -1],
    float: [1e30, -1e30, math.nan, math.inf],
    str: ["x" * 2000, "\n", ""],
    bool: [True, False],
    bytes: [b"\0" * 2000],
    tuple: [((2**40, 0, 10**9),), ((0, 9, 3),), ((0, 0, 10**6),), ((-1, -5, -2),)],
}
SPANS = [((0, 10**9),), ((7, 3),), ((-4, 2),), ((3, 5), (1, 2))]


def hostile(cls: type, field: str, turn: int) -> Any:
    hint = get_type_hints(cls)[field]
    kind = get_origin(hint) or hint
    if field == "unused":
        return SPANS[turn % len(SPANS)]
    if kind is tuple and get_args(hint)[0] is int:
        return [(10**6, 1), (-1, 0, 1), (0, 0, 0, 1)][turn % 3]
    if kind is tuple and get_args(hint)[0] is str:
        return ("x" * 5000,)
    values = VALUES.get(kind, [0])
    return values[turn % len(values)]


def changed(message: Any, field: str, turn: int) -> Any:
    """`message` with a lie in `field`; it is not made anew, as it might refuse that."""
    lie = copy.copy(message)
    setattr(lie, field, message.g[: len(message.g) // 2] if field == "g" else hostile(type(message), field, turn))
    return lie


def made(cls: type) -> Any:
    """One that is honest as far as that goes."""
    plain = {int: 1, float: 0.5, str: "a", bool: False}
    values = {name: plain.get(hint, ()) for name, hint in get_type_hints(cls).items()}
    return cls(**values)


def install(words: str) -> None:
    """Every transport of this process: `RANK Message.field`."""
    from paceline.core.coordination import control_messages as control
    from paceline.core.coordination import party
    from paceline.core.paramserver.gated_server import Push
    from paceline.live.net.inprocess_transport import HubTransport
    from paceline.live.net.tcp_transport import TcpTransport
    from paceline.live.protocol.transport import Envelope, Kind

    rank, _, what = words.partition(" ")
    name, _, field = what.partition(".")
    liar, pushes, turn = party.worker(int(rank)), itertools.count(), itertools.count()
    lying = [False]
    injected = name in ("Rate", "Past", "Aware", "Ask", "Want")

    def lies(transport: Any, send: Any, to: Any, envelope: Any) -> None:
        message = envelope.message
        if isinstance(message, Push) and next(pushes) == HONEST:
            lying[0] = True
        if lying[0] and injected and isinstance(message, Push):
            cls = getattr(control, name)
            lie = Envelope(Kind.CONTROL, changed(made(cls), field, next(turn)))
            send(transport, to if name == "Rate" else party.COORDINATOR, lie)
        if lying[0] and type(message).__name__ == name:
            envelope.message = changed(message, field, next(turn))
        send(transport, to, envelope)

    for kind in (TcpTransport, HubTransport):
        honest = kind.send

        def send(self: Any, to: Any, envelope: Any, honest: Any = honest) -> None:
            if self.me == liar and not isinstance(envelope.message, control.Failed):
                lies(self, honest, to, envelope)
            else:
                honest(self, to, envelope)

        kind.send = send  # type: ignore[method-assign]


if os.environ.get("PACELINE_LIE"):
    install(os.environ["PACELINE_LIE"])
