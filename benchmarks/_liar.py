"""A worker that lies: in one field of one class of its messages, or by messages that it would not send.

Whoever has this folder in PYTHONPATH as `sitecustomize` (`benchmarks/liars.py --processes` does that) and PACELINE_LIE
in the environment, such as `[3, 4, "Push.samples|beyond|25"]`, has a worker 3 of 4 that lies in that field after 25
honest pushes, by values beyond the bounds. In threads of one process `install` does the same.
"""

from __future__ import annotations

import copy
import json
import math
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.message import plane_of, vector_fields
from paceline.core.validation.bounds import ITEMS_MAX, Length, PlanLimits, bounds_of
from paceline.live.net.inprocess_transport import HubTransport
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.protocol.transport import Envelope, Kind

LENGTHS, NUMBERS_OF_VECTORS = ("short", "long", "empty"), ("nan", "inf")
ONE_OF: dict[type, Any] = {int: 1, float: 1.0, str: "x"}
"""What a list holds too many of that is empty in an honest message: decoding refuses others before they arrive."""
WRONG_NUMBERS = ("huge", "opposite")
"""Finite, and so believed but where the rule is robust."""
IN_TURN = "each"
"""In place of a field: all fields of the message to which that way to lie belongs, one after the other."""
STRAYS = ("twice", "wrong party", "unasked")
"""What is done with a whole message instead of a field: it is sent twice, or to parties that it is not for. Unasked:
one that this worker never sends, but others do."""
STRAYS_MAX = 8
"""Messages that a liar sends so; each goes to several parties."""
TEXT_LONG = 2000
FAR = 50_000
BEYOND: dict[type, tuple[Any, ...]] = {
    int: (10**9, -1, 2**60, -(10**9), FAR),
    float: (1e30, -1.0, math.nan, math.inf, -math.inf),
    str: ("x" * TEXT_LONG, "\n", ""),
    bytes: (b"\0" * TEXT_LONG, b"", b"\xff{"),
}
NONSENSE: tuple[tuple[Any, ...], ...] = (
    *(((2**40, 0, 10**9),), ((0, 9, 3),), ((-1, -5, -2),), ((0, 10**9),), ((7, 3),), ((-4, 2),)),
    *((10**6, 1), (-1, 0, 1), (0, 0, 0, 1), (-5,), ("x" * TEXT_LONG,)),
)


@dataclass(frozen=True)
class Lie:
    """`field` of `message` as `how` says; `after` so many honest messages of that class. No field: see STRAYS."""

    message: str
    field: str
    how: str
    after: int

    @classmethod
    def parse(cls, text: str) -> Lie:
        what, how, after = text.split("|")
        message, _, field = what.partition(".")
        return cls(message, field, how, int(after))

    def __str__(self) -> str:
        return f"{self.message}{'.' * bool(self.field)}{self.field}|{self.how}|{self.after}"


def ways_to_lie(cls: type, *, robust: bool = False) -> list[tuple[str, str]]:
    """Returns every field of a message class with each way to lie in it."""
    vectors = vector_fields(cls)
    found = []
    for name, hint in get_type_hints(cls).items():
        if name == "carries" or name not in getattr(cls, "__dataclass_fields__", {}):
            continue
        if name in vectors:
            ways = LENGTHS + NUMBERS_OF_VECTORS + (WRONG_NUMBERS if robust else ())
        elif hint is bool:
            ways = ("flipped",)
        elif hint in (int, float):
            ways = ("beyond", "within")
        elif get_origin(hint) is tuple or hint is tuple:
            ways = ("too many", "nonsense")
        else:
            ways = ("beyond",)
        found += [(name, way) for way in ways]
    return found


def hostile(message: Any, field: str, how: str, turn: int) -> Any:
    """Returns what stands in `field` in place of the truth, the `turn`-th time."""
    value, hint = getattr(message, field), get_type_hints(type(message))[field]
    match how:
        case "short":
            return value[: len(value) // 2]
        case "empty":
            return value[:0]
        case "long":
            return _joined([value, value])
        case "nan" | "inf":
            return value * float(how)
        case "huge":
            return value * 1e30
        case "opposite":
            return value * -10.0
        case "flipped":
            return not value
        case "too many":
            return (value[:1] or (ONE_OF.get(get_args(hint)[0], (0, 0, 1)),)) * (ITEMS_MAX + 1)
        case "nonsense":
            return NONSENSE[turn % len(NONSENSE)]
        case "within" if hint is float:
            return (0.0, value * 2, value / 2, 1e-9)[turn % 4]
        case "within":
            return (0, value + 1, max(0, value - 1), value + FAR)[turn % 4]
    values = BEYOND.get(hint, (value,))
    return values[turn % len(values)]


def _joined(parts: list[Any]) -> Any:
    from paceline.engine.vectors.flat import Flat, FlatMemory

    if isinstance(parts[0], Flat):
        return FlatMemory().join(parts)
    import torch

    return torch.cat(parts)


def changed(message: Any, field: str, value: Any) -> Any:
    """`message` with a lie in `field`; it is not made anew, as it might refuse that."""
    lie = copy.copy(message)
    setattr(lie, field, value)
    return lie


class Liar:
    """Counts what worker `rank` sends, and lies once it is time. Without a lie it only counts.

    sent: by class, all messages. before: those of them before training. seen: one of each class that anybody sends.
    beyond: whether something was sent that is beyond its declared bounds. told: lies.
    """

    def __init__(self, rank: int, lie: Lie | None, workers: int) -> None:
        self.me, self.lie, self.told, self.beyond = party.worker(rank), lie, 0, False
        self._limits = PlanLimits(workers=workers)
        self.sent, self.before = Counter[str](), Counter[str]()
        self.classes: dict[str, type] = {}
        self.seen: dict[str, Envelope] = {}
        self._training = self._left = False
        self._lock = threading.Lock()
        self._others = [party.COORDINATOR, party.server(0), party.worker(0), party.worker(1), party.server(1)]

    def send(self, honest: Callable[..., None], transport: Any, to: Any, envelope: Envelope) -> None:
        """Sends a message of anybody; one of the liar's may become another, or more."""
        cls = type(envelope.message)
        self.seen.setdefault(cls.__name__, copy.copy(envelope))
        if transport.me != self.me:
            if to == self.me and cls in (control.Go, control.Stop, control.Finish):
                self._training = cls is control.Go
            honest(transport, to, envelope)
            return
        if cls is control.Left:
            self._training, self._left = False, True
        with self._lock:
            self.sent[cls.__name__] += 1
            self.before[cls.__name__] += not (self._training or self._left)
            self.classes[cls.__name__] = cls
        lie = self.lie
        if lie is None or isinstance(envelope.message, control.Failed):
            honest(transport, to, envelope)
        elif lie.field:
            if cls.__name__ == lie.message and self.sent[lie.message] > lie.after:
                self._lie_in_a_field(lie, envelope)
            honest(transport, to, envelope)
        else:
            honest(transport, to, envelope)
            self._stray(lie, honest, transport, to, envelope)

    def _lie_in_a_field(self, lie: Lie, envelope: Envelope) -> None:
        message, field = envelope.message, lie.field
        if field == IN_TURN:
            fields = [name for name, how in ways_to_lie(type(message)) if how == lie.how]
            field = fields[(self.told + lie.after) % len(fields)]
        value = hostile(message, field, lie.how, self.told)
        self.told += 1
        bound = bounds_of(type(message)).get(field)
        if isinstance(bound, Length):
            self.beyond |= len(value) != len(getattr(message, field)) and (bound.exact or lie.how == "long")
        elif bound is not None:
            self.beyond |= bound.fault(value, self._limits) is not None
        envelope.message = changed(message, field, value)

    def _stray(self, lie: Lie, honest: Callable[..., None], transport: Any, to: Any, envelope: Envelope) -> None:
        """Sends a whole message where it does not belong, after one that is honest."""
        if self.told >= STRAYS_MAX or not self._training:
            return
        sample = envelope if lie.how in ("twice", "wrong party") else self.seen.get(lie.message)
        if sample is None or (lie.how != "unasked" and type(sample.message).__name__ != lie.message):
            return
        if lie.how != "unasked" and self.sent[lie.message] <= lie.after:
            return
        self.told += 1
        whom = [to] if lie.how == "twice" else [other for other in self._others if lie.how == "unasked" or other != to]
        for other in whom:
            again = copy.copy(sample)
            if lie.how != "twice" and plane_of(type(sample.message)) == "scheme":
                again.kind, again.slice = Kind.TELL, 0
            try:
                honest(transport, other, again)
            except Exception:
                continue  # it has no connection to that one


def install(liar: Liar) -> None:
    """Makes every transport of this process send as `liar` says."""
    for kind in (TcpTransport, HubTransport):
        honest = kind.send

        def send(self: Any, to: Any, envelope: Any, honest: Any = honest) -> None:
            liar.send(honest, self, to, envelope)

        kind.send = send  # type: ignore[method-assign]


if given := os.environ.get("PACELINE_LIE"):
    rank, workers, lie = json.loads(given)
    install(Liar(rank, Lie.parse(lie), workers))
