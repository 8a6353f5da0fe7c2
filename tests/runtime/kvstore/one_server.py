"""A server of a key-value store, without a network."""

from __future__ import annotations

from typing import Any

from paceline.runtime.kvstore import messages as m
from paceline.runtime.kvstore.store_spec import StoreSpec
from paceline.runtime.kvstore.table import open_table


class Server:
    """One of a store of one worker, without a network."""

    def __init__(self) -> None:
        node: Any = None
        self.hosted = open_table(node, StoreSpec(type="dist_async"), workers=1)

    def answer(self, slice: int, message: Any) -> Any:
        (reply,) = self.hosted[slice].role.on(0.0, 0, message)  # type: ignore[union-attr]
        return reply.message

    def declare(self, key: str, shape: tuple[int, ...] = (2,)) -> Any:
        return self.answer(0, m.Declare(key=key, shape=shape, dtype="float32", length=2))
