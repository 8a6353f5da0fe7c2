"""The gradient as it comes: which parameters have theirs while backward still runs.

Autograd tells of every parameter whose gradient of one backward pass is complete (post-accumulate hooks), the last
layers first. What may be read early may not change any more. So a second backward pass before the gradient is closed
is refused, and so is whatever else writes into gradients in the meantime, such as clipping.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from paceline.core.errors import ConfigError
from paceline.core.spans import Span
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.chunked import ChunkedVector, Chunks

WAY_OUT = "give --overlap off, or leave overlap=True out of paceline.join"


class Backward:
    """Watches the backward passes of `flat`. Not thread-safe: hooks run one after the other."""

    def __init__(self, flat: FlatModel) -> None:
        self._flat = flat
        self._names = [name for name, _ in flat.layout()]
        self._missing: set[int] = set()
        self._parts: Chunks | None = None
        self._buffer: Tensor | None = None
        self._version = 0
        self.unused: list[Span] = []  # of the gradient that is under way; complete before the last of it is there
        self.seconds = 0.0  # spent on telling of what has arrived
        self._arrived: Callable[[], None] = lambda: None
        self._hooks: list[RemovableHandle] = [
            p.register_post_accumulate_grad_hook(functools.partial(self._accumulated, i))  # type: ignore[no-untyped-call]
            for i, p in enumerate(flat.parameters)
            if p.requires_grad
        ]

    def open(self, what: str, arrived: Callable[[], None]) -> ChunkedVector:
        """Returns the gradient of the next backward pass. `arrived` is called whenever more of it is there."""
        self._parts, self._buffer = self._flat.lend_arriving(what)
        self._missing = set(range(len(self._names)))
        self._version, self._arrived = self._buffer._version, arrived
        self.unused = []
        return self._parts.vector

    def close(self) -> None:
        """Backward is over: parameters it did not reach have a gradient of zero.

        Raises ConfigError when gradients were changed after they could be read.
        """
        parts, buffer = self._parts, self._buffer
        assert parts is not None
        assert buffer is not None
        self._parts = self._buffer = None
        if buffer._version != self._version:
            raise ConfigError(
                "gradients were changed between backward and pace.step(), by clipping perhaps; with overlap they have "
                f"left by then: {WAY_OUT}"
            )
        missing = sorted(self._missing)
        for i in missing:
            self._flat.collect_one(i)
        self.unused += self._flat.unused_among(missing)  # a slice with one of them leaves only now
        for i in missing:
            parts.put(i)

    def cancel(self) -> None:
        """Nobody wants this gradient early; it may grow as it likes."""
        self._parts = self._buffer = None

    def end(self) -> None:
        """Watch no more."""
        self.cancel()
        for hook in self._hooks:
            hook.remove()

    def _accumulated(self, i: int, _parameter: Any) -> None:
        if self._parts is None or self._buffer is None:
            return
        if i not in self._missing:
            raise ConfigError(
                f"parameter {self._names[i]} got a gradient twice before pace.step(), and with overlap the first has "
                f"left by then; to add up several backward passes, {WAY_OUT}"
            )
        self._missing.discard(i)
        self._flat.collect_one(i)
        self._version = self._buffer._version
        began = time.monotonic()
        self._parts.put(i)
        self._arrived()
        self.seconds += time.monotonic() - began
