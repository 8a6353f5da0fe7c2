"""Implements torch.distributed's store at the coordinator: its members meet without a port or a folder of their own."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from paceline.core.coordination.party import COORDINATOR
from paceline.live.collectives.store import Add, Forget, Found, Get, Put
from paceline.live.node.node import Node

torch_distributed: Any = dist  # parts of it carry no types

ANSWER_SECONDS = 10.0  # besides the wait itself: for a coordinator that another process is about to replace


class RunStore(torch_distributed.Store):  # type: ignore[misc]
    """Keeps keys and values over one worker's connection to the coordinator; any thread may call it.

    No wait is longer than `timeout_s`, whatever the caller gives. All methods raise PeerLost where a worker or the
    coordinator is lost, with its host, and TimedOut naming those who have not come. The names of the methods and
    their semantics are torch's.
    """

    def __init__(self, node: Node, timeout_s: float) -> None:
        super().__init__()
        self._node, self._timeout_s = node, timeout_s

    def set(self, key: str, value: bytes | str) -> None:
        """Sets the value of a key."""
        self._ask(Put(key=key, value=_bytes(value)))

    def get(self, key: str) -> bytes:
        """Returns the value of a key; waits until it has one."""
        return self._ask(Get(key=key, seconds=self._timeout_s)) or b""

    def add(self, key: str, amount: int) -> int:
        """Adds to the number of a key, and returns the sum."""
        return int(self._ask(Add(key=key, amount=amount)) or 0)

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        """Sets the value if it is `expected`; returns what the key has then, or `expected` if it has nothing, as torch
        does."""
        before = _bytes(expected)
        now = self._ask(Put(key=key, value=_bytes(desired), instead_of=before))
        return before if now is None else now

    def check(self, keys: Sequence[str]) -> bool:
        """Returns True if all of these keys have values by now."""
        return all(self._ask(Get(key=key)) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        """Waits until all of these keys have values, for `timeout` in all."""
        until = time.monotonic() + min(self._timeout_s, timeout.total_seconds() if timeout else self._timeout_s)
        for key in keys:
            self._ask(Get(key=key, seconds=max(0.01, until - time.monotonic())))

    def delete_key(self, key: str) -> bool:
        """Deletes a key; returns True if it had a value."""
        return self._ask(Forget(key=key)) is not None

    def clone(self) -> RunStore:
        """Returns itself: there is no connection of its own that could be doubled."""
        return self

    def _ask(self, question: Put | Get | Add | Forget) -> bytes | None:
        what = f"the answer of the coordinator to {type(question).__name__} {question.key}"
        patience_s = ANSWER_SECONDS + (question.seconds if isinstance(question, Get) else 0.0)
        found: Found = self._node.ask(COORDINATOR, 0, question, what).wait(patience_s)
        return found.value


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
