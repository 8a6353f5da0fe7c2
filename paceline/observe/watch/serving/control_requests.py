"""What a person may do on the page of `paceline watch --control`; each thing is asked twice.

    POST /control {"kind": "expel", "rank": 3}                       -> 200 {"sentence": "...", "confirm": "WORD"}
    POST /control {"kind": "expel", "rank": 3, "confirm": "WORD"}    -> 200 {"given": true}

The word is good once, for CONFIRM_SECONDS, and for the very same request. What becomes of an order is in the trace. Who
may ask at all `app.py` decides.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from paceline.core.errors import PacelineError

BODY_BYTES_MAX = 1024
FACTOR_MAX = 1e6
CONFIRM_SECONDS = 30.0
WORDS_MAX = 100
"""Questions that may be open; beyond that the oldest are forgotten."""

Give = Callable[[str, int, float], None]
"""Gives an order: kind, rank of a worker, factor on the learning rate. Raises PacelineError if it cannot be given."""

SENTENCES = {
    "expel": "Expel worker {rank}: what it is at is lost, and it is not started again.",
    "drain": "Drain worker {rank}: it finishes its step and leaves for good.",
    "grow": "Start one more worker.",
    "checkpoint": "Write a checkpoint now.",
    "learning-rate": "Multiply the learning rate of every worker by {factor:g}.",
}
"""What the page asks, by the kind of order."""


class ControlRequests:
    """Takes requests; `give` gives an order to the run. Any thread may call it."""

    def __init__(self, give: Give, now: Callable[[], float] = time.monotonic) -> None:
        self._give, self._now = give, now
        self._lock = threading.Lock()
        self._open: dict[str, tuple[float, tuple[str, int, float]]] = {}

    def take(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Returns status and answer for a request."""
        try:
            order, word = _parsed(body)
        except ValueError as error:
            return 400, {"error": str(error)}
        if not word:
            return 200, {
                "sentence": SENTENCES[order[0]].format(rank=order[1], factor=order[2]),
                "confirm": self._ask(order),
            }
        if not self._confirmed(word, order):
            return 409, {"error": "This question is no longer open; ask again."}
        try:
            self._give(*order)
        except PacelineError as error:
            return 503, {"error": str(error)}
        return 200, {"given": True}

    def _ask(self, order: tuple[str, int, float]) -> str:
        """Returns the word that confirms this order."""
        word = secrets.token_urlsafe(16)
        with self._lock:
            self._open[word] = (self._now() + CONFIRM_SECONDS, order)
            while len(self._open) > WORDS_MAX:
                del self._open[next(iter(self._open))]
        return word

    def _confirmed(self, word: str, order: tuple[str, int, float]) -> bool:
        """Returns True once for a word that is still good for this order."""
        with self._lock:
            until, asked = self._open.pop(word, (-math.inf, ("", 0, 0.0)))
        return self._now() <= until and asked == order


def _parsed(body: bytes) -> tuple[tuple[str, int, float], str]:
    """Returns an order and the word that confirms it, or "". Raises ValueError for what is no request."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("a request is a JSON object") from None
    if not isinstance(told, dict) or told.keys() - {"kind", "rank", "factor", "confirm"}:
        raise ValueError("a request has kind, rank, factor and confirm")
    kind, rank, factor, word = told.get("kind"), told.get("rank", 0), told.get("factor", 1.0), told.get("confirm", "")
    if not isinstance(kind, str) or kind not in SENTENCES:
        raise ValueError(f"kind is one of {', '.join(SENTENCES)}")
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < 1 << 31:
        raise ValueError("rank is the number of a worker")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= FACTOR_MAX:
        raise ValueError(f"factor is a number above 0 and up to {FACTOR_MAX:g}")
    if not isinstance(word, str):
        raise ValueError("confirm is a word")
    return (kind, rank, float(factor)), word
